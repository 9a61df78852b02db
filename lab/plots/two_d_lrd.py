"""Plot of 2D-LRD: the detector's sum S, the number of decays d, tau, alpha, and the rates of each round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from server_app.records.row_values import numbers
from server_app.reports.curve import points

from ..results.run_folders import Run
from .panels import LinePanel, Map, Panel, PlotFigure, band_of, looks_of_parts, numbered
from .single_runs import first_of_each

RATES = "two_d_lrd/rates"


def two_d_lrd(runs: Sequence[Run], colours: Mapping[str, int]) -> PlotFigure:
    """A column per run; rows: S and its last term, d and tau, alpha, the rates of the local iterations.

    One run per method and setting: detectors of different seeds fire in different rounds, so a mean over seeds
    has no meaning.
    """
    shown, which = first_of_each(runs, colours)
    notes = ["dotted line: d increases", which]
    parts = [_of_run(*labelled_run) for labelled_run in shown]
    return PlotFigure("2D-LRD: detector and rates", notes, parts, (5.2, 2.2), columns=True, own_legends=True)


def _of_run(run: Run, name: str, colour: int) -> list[Panel]:
    marks = fired(run)

    def lines(
        about: str, y: str, names: Mapping[str, str], title: str = "", least: float | None = None
    ) -> LinePanel:
        bands = {label: band_of([run], f"two_d_lrd/{symbol}") for symbol, label in names.items()}
        looks = looks_of_parts(bands, colour)
        return LinePanel(
            about, name, y, bands, title=title, looks=looks, marks=marks, least=least, zero=bool(title)
        )

    rounds, values = rates(run)
    return [
        lines(
            "the detector, in squared norms of weights",
            "S (norm² of weights)",
            {"S": "S, before the test", "inner": "inner product of two steps"},
            title=name,
        ),
        lines(
            "decays so far, and mini-batches in a round",
            "count",
            {"d": "d, decays so far", "tau": "tau, mini-batches per round"},
            least=0.0,
        ),
        lines("the decay within a round", "alpha (factor)", {"alpha": "alpha, decay within a round"}, least=0.0),
        Map(
            "rate of each mini-batch, as a fraction of the first",
            name,
            "mini-batch",
            values,
            numbered(rounds),
            numbered(range(len(values))),
            "fraction of the first rate",
            limits=(0.0, 1.0),
        ),
    ]


def fired(run: Run) -> list[int]:
    """The rounds after which d is higher than before."""
    counts = points(run.rows, "two_d_lrd/d")
    return [after[0] for before, after in zip([(0, 0), *counts], counts, strict=False) if after[1] > before[1]]


def rates(run: Run) -> tuple[list[float], np.ndarray]:
    """The rounds, and the rate of each mini-batch (mini-batches, rounds) as a fraction of the first: or NaN."""
    by_round = {row["round"]: rates for row in run.rows if (rates := numbers(row, RATES))}
    values = np.full((max(map(len, by_round.values()), default=0), len(by_round)), np.nan)
    for column, rates in enumerate(by_round.values()):
        values[: len(rates), column] = rates
    return list(by_round), values
