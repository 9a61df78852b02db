"""Plot of Fedalr: the rate eta of every client over rounds, as lines (extremes and mean) and as a heat map."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from server_app.figures.style import against_rounds, legend_label
from server_app.values import labels, numbers

from ..results.runs import Run
from .canvas import heat_map, legend_below, line, over_rounds, panels, some, whole_numbers
from .examples import first_of_each
from .layers import label_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLIENTS, ETA = "fedalr/client", "fedalr/eta"
MOST_NAMES = 20
"""Names of clients at the axis."""

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


def rates_of_clients(run: Run) -> tuple[dict[int | str, int], list[float], np.ndarray]:
    """The row of each client, the rounds, and eta (rows, rounds): NaN for a client that did not take part."""
    rows = [row for row in run.rows if labels(row, CLIENTS)]
    places = _places([client for row in rows for client in labels(row, CLIENTS)], run.config.clients)
    values = np.full((max(run.config.clients, 1 + max(places.values(), default=0)), len(rows)), np.nan)
    for column, row in enumerate(rows):
        for client, eta in zip(labels(row, CLIENTS), numbers(row, ETA), strict=False):
            values[places[client], column] = eta
    return places, [row["round"] for row in rows], values


def _map(axes: Axes, run: Run) -> None:
    places, rounds, values = rates_of_clients(run)
    if np.isfinite(values).any():
        heat_map(axes, values, unit="eta")
    axes.set_ylabel("client")
    if all(client == place for client, place in places.items()):
        whole_numbers(axes.yaxis, run.config.clients)
    else:
        shown = some(sorted(places, key=places.__getitem__), MOST_NAMES)
        axes.set_yticks([places[client] for client in shown], [legend_label(str(client)) for client in shown])
    label_columns(axes, rounds)


def _places(clients: Sequence[int | str], count: int) -> dict[int | str, int]:
    """The row of each client: a partition id is its place; names and node ids, sorted, fill the other rows."""
    seen = dict.fromkeys(clients)
    places: dict[int | str, int] = {c: c for c in seen if isinstance(c, int) and 0 <= c < count}
    free = iter(sorted(set(range(count + len(seen))) - set(places.values())))
    return places | {c: next(free) for c in sorted(set(seen) - set(places), key=str)}
