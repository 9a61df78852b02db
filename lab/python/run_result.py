"""A run that has ended, as Python has it: its records as DataFrames, its figures, its model and its plots."""

from __future__ import annotations

import functools
import html
import io
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from fedstride import user_parts
from fedstride.figures.metrics import as_text, shown
from fedstride.files import chained_lines
from server_app.config.schema import Config
from server_app.records.row_values import Row
from server_app.reports.status_file import FINAL
from server_app.stopping import chosen_round

from ..plots import draw
from ..prediction.model import Model, load
from ..results.run_folders import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Result:
    """A run, as its folder has it. A notebook shows a summary.

    `folder`: the run's folder, absolute. `notes`: what the user should know, a line each.
    """

    def __init__(self, run: Run, notes: Sequence[str] = ()) -> None:
        self.run = run
        self.notes = tuple(dict.fromkeys([*notes, *run.faults]))

    @property
    def folder(self) -> Path:
        """The run's folder, absolute."""
        return self.run.folder

    @property
    def config(self) -> Config:
        """The whole configuration, as in `config.yaml`."""
        return self.run.config

    @property
    def state(self) -> str:
        """How the run ended: completed, failed, interrupted, terminated, or running, lost or unknown."""
        return self.run.state

    @property
    def metric(self) -> str:
        """The name of the metric that decides, such as `test/accuracy`."""
        return self.run.headline

    @cached_property
    def rounds(self) -> pd.DataFrame:
        """A row for each round, by its number; round 0 is the model before training. A column for each metric."""
        return frame(self.run.rows).set_index("round")

    @cached_property
    def clients(self) -> pd.DataFrame:
        """A row for each round and client, with its `status`, its bytes and what it has reported."""
        return frame(self.run.clients.rows)

    @cached_property
    def figures(self) -> pd.DataFrame:
        """A row for each figure of evaluations, float64: `final` of the last round, `best` of `best_round`."""
        names = [name for name in self.rounds.columns if name.startswith(FINAL)]
        best = self.best_round
        columns = {
            "final": self.rounds[names].iloc[-1],
            "best": None if best is None else self.rounds[names].loc[best],
        }
        return pd.DataFrame(columns, index=pd.Index(names, name="metric"), dtype=float)

    @property
    def best_round(self) -> int | None:
        """The best round by the metric that decides; None if no value of it is better than another."""
        best = chosen_round(self.run.rows, self.metric)
        return None if best is None else best[0]

    @cached_property
    def model(self) -> Model:
        """The model of the last round, which predicts: what `fedstride.load(folder)` returns."""
        return load(self.folder)

    @cached_property
    def best_model(self) -> Model:
        """The model of the best round."""
        return load(self.folder, "best")

    def plot(self, kind: str = "accuracy") -> Figure:
        """A plot of `fedstride plot KIND`: the metric that decides against rounds, or what else was measured.

        Raises ConfigError for an unknown kind, and if the run does not have its metric.
        """
        return plotted(kind, [self.run])

    @property
    def title(self) -> str:
        """The method, and its final figure."""
        value = self.run.rows[-1].get(self.metric) if self.run.rows else None
        figure = "" if value is None else f", {shown(self.metric)} {as_text(self.metric, value)}"
        return f"{self.run.method}{figure}" + (f" ({self.run.remark})" if self.run.remark else "")

    def __repr__(self) -> str:
        return f"<{self.title}: {self.folder}>"

    def _repr_html_(self) -> str:
        best = self.best_round
        heads = ["", "final", "best" if best is None else f"best, round {best}"]
        rows = [
            [shown(name), *(_figure(name, value) for value in values)]
            for name, *values in self.figures.itertuples()
        ]
        return (
            f"<p><b>{html.escape(self.title)}</b></p>{as_html(heads, rows)}"
            f"<p><code>{html.escape(str(self.folder))}</code></p>{lines_html(self.notes)}"
        )


def _figure(name: str, value: float) -> str:
    return "" if pd.isna(value) else as_text(name, value)


def frame(rows: Sequence[Row]) -> pd.DataFrame:
    """The rows, without what only chains the lines of a file."""
    return pd.DataFrame(
        [{key: value for key, value in row.items() if key not in chained_lines.KEYS} for row in rows]
    )


@user_parts.alone()
def plotted(kind: str, runs: Sequence[Run]) -> Figure:
    """The plot of these runs, which a notebook shows as an image, also without its setting for matplotlib."""
    figure = draw(kind, runs)
    figure._repr_png_ = functools.partial(_png, figure)  # type: ignore[attr-defined]
    return figure


def _png(figure: Figure) -> bytes:
    from server_app.reports.plot_style import save_figure

    file = io.BytesIO()
    save_figure(figure, file, format="png")
    return file.getvalue()


def as_html(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of these texts."""

    def line(tag: str, texts: Sequence[str]) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(text)}</{tag}>" for text in texts) + "</tr>"

    return f"<table>{line('th', heads)}{''.join(line('td', row) for row in rows)}</table>"


def lines_html(notes: Sequence[str]) -> str:
    """A line for each note."""
    return "".join(f"<p><i>{html.escape(note)}</i></p>" for note in notes)
