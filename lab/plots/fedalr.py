"""Plot of Fedalr: the rate eta of every client over rounds, as lines (extremes and mean) and as a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from server_app.figures.style import against_rounds

from ..results.runs import Run
from .canvas import heat_map, legend_below, line, over_rounds, panels, whole_numbers
from .examples import first_of_each
from .layers import label_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = {"fedalr/eta_max": "largest", "fedalr/eta_mean": "mean", "fedalr/eta_min": "smallest"}


def fedalr(runs: Sequence[Run]) -> Figure:
    """Smallest, mean and largest rate (left); the rate of every client (right), white if it did not take part.

    One run per method and setting, since the clients of different seeds hold different data.
    """
    shown, which = first_of_each(runs)
    figure, grid = panels(
        len(shown), 2, width=4.8, height=3.2, title=f"Fedalr: rate eta of the clients, at most 1\n{which}"
    )
    for (left, right), (run, name) in zip(grid, shown, strict=True):
        for number, (key, label) in enumerate(LINES.items()):
            line(left, over_rounds([run.rows], key), label, number)
        against_rounds(left)
        left.set_ylabel("eta (factor, no unit)")
        _map(right, run)
        for axes in (left, right):
            axes.set_title(name, fontsize=8)
    legend_below(figure, [row[0] for row in grid])
    return figure


def _map(axes: Axes, run: Run) -> None:
    rows = [row for row in run.rows if row.get("fedalr/client")]
    values = np.full((run.config.clients, len(rows)), np.nan)
    for column, row in enumerate(rows):
        for client, eta in zip(row["fedalr/client"], row["fedalr/eta"], strict=True):
            if 0 <= client < run.config.clients:  # in a deployment, a client may have only its node id
                values[client, column] = eta
    if np.isfinite(values).any():
        heat_map(axes, values, unit="eta")
    axes.set_ylabel("client")
    whole_numbers(axes.yaxis, run.config.clients)
    label_columns(axes, [row["round"] for row in rows])
