"""Plot of the calibration: for each bin of predicted probabilities the share that was observed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fedstride.figures.metrics import as_text
from fedstride.messages import wire
from server_app.records.row_values import Row, number, numbers

from ..results.run_folders import Run
from .panels import Band, LinePanel, Look, Map, Panel, PlotFigure
from .single_runs import first_of_each

PLACES = (wire.LOCAL, "test")
"""Where it is measured: at the clients, or at the server."""

DIAGONAL = "as predicted"


def reliability(runs: Sequence[Run], colours: Mapping[str, int]) -> PlotFigure:
    """A column per run: the share observed against the mean predicted probability, and the rows of each bin.

    One run per method and setting, of the last round that has the table.
    """
    shown, which = first_of_each(runs, colours)
    parts = [_of_run(run, name, colour) for run, name, colour in shown]
    notes = [
        "below the dashed line, more is predicted than happens",
        "bins of equal width, those without rows are left out",
        which,
    ]
    return PlotFigure("reliability", notes, parts, (4.0, 3.4), columns=True, own_legends=True)


def _of_run(run: Run, name: str, colour: int) -> list[Panel]:
    rows = [(place, row) for place in PLACES if (row := _last(run, place)) is not None]
    return [panel for place, row in rows for panel in _panels(place, row, name, colour)]


def _last(run: Run, place: str) -> Row | None:
    return next((row for row in reversed(run.rows) if numbers(row, f"{place}/reliability")), None)


def _panels(place: str, row: Row, name: str, colour: int) -> list[Panel]:
    values = numbers(row, f"{place}/reliability")
    size = len(values) // 3
    predicted, observed, count = (values[at : at + size] for at in (0, size, 2 * size))
    kept = [at for at in range(size) if count[at] > 0]
    x, y = ([shares[at] for at in kept] for shares in (predicted, observed))
    error = number(row, f"{place}/calibration")
    ends = sorted({0.0, 1.0, *x})
    where = f"{'at the clients' if place == wire.LOCAL else 'on the test set'}, round {row['round']}"
    of = f"{name}, {where}"
    title = where if error is None else f"{where}: ECE {as_text(f'{place}/calibration', error)}"
    bands = {name: Band(x, y, y, y, 1) if kept else None, DIAGONAL: Band(ends, ends, ends, ends, 1)}
    looks = {name: Look(colour, 0), DIAGONAL: Look(0, 2)}
    return [
        LinePanel(
            "share observed against the mean predicted probability",
            of,
            "share observed",
            bands,
            x="mean predicted probability",
            title=title,
            looks=looks,
            least=0.0,
        ),
        Map(
            "rows of each bin",
            of,
            "count",
            np.array([[value if value > 0 else np.nan for value in count]]),
            [f"{at / size:g}" for at in range(size)],
            ["rows"],
            "rows",
            x="predicted probability, from",
            form="{:.0f}",
        ),
    ]
