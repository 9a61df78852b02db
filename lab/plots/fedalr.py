"""Plot of Fedalr: the rate eta of every client over rounds, as lines (extremes and mean) and as a heat map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from server_app.records.row_values import labels, numbers

from ..results.run_folders import Run
from .panels import LinePanel, Map, Panel, PlotFigure, band_of, looks_of_parts, numbered
from .single_runs import first_of_each

CLIENTS, ETA = "fedalr/client", "fedalr/eta"
LINES = {"fedalr/eta_max": "largest", "fedalr/eta_mean": "mean", "fedalr/eta_min": "smallest"}


def fedalr(runs: Sequence[Run], colours: Mapping[str, int]) -> PlotFigure:
    """Smallest, mean and largest rate (left); the rate of every client (right), empty if it did not take part.

    One run per method and setting, since the clients of different seeds hold different data.
    """
    shown, which = first_of_each(runs, colours)
    parts: list[list[Panel]] = [[_lines(run, name, colour), _map(run, name)] for run, name, colour in shown]
    return PlotFigure("Fedalr: rate eta of the clients, a factor, at most 1", [which], parts, (4.8, 3.2))


def _lines(run: Run, name: str, colour: int) -> LinePanel:
    bands = {label: band_of([run], key) for key, label in LINES.items()}
    looks = looks_of_parts(bands, colour)
    return LinePanel(
        "eta of the clients in a round", name, "eta (factor, no unit)", bands, title=name, looks=looks
    )


def _map(run: Run, name: str) -> Map:
    places, rounds, values = rates_of_clients(run)
    known = {place: str(client) for client, place in places.items()}
    rows = [known.get(place, str(place)) for place in range(len(values))]
    return Map("eta of each client", name, "client", values, numbered(rounds), rows, "eta", title=name)


def rates_of_clients(run: Run) -> tuple[dict[int | str, int], list[float], np.ndarray]:
    """The row of each client, the rounds, and eta (rows, rounds): NaN for a client that did not take part."""
    rows = [row for row in run.rows if labels(row, CLIENTS)]
    places = _places([client for row in rows for client in labels(row, CLIENTS)], run.config.clients)
    values = np.full((max(run.config.clients, 1 + max(places.values(), default=0)), len(rows)), np.nan)
    for column, row in enumerate(rows):
        for client, eta in zip(labels(row, CLIENTS), numbers(row, ETA), strict=False):
            values[places[client], column] = eta
    return places, [row["round"] for row in rows], values


def _places(clients: Sequence[int | str], count: int) -> dict[int | str, int]:
    """The row of each client: a partition id is its place; names and node ids, sorted, fill the other rows."""
    seen = dict.fromkeys(clients)
    places: dict[int | str, int] = {c: c for c in seen if isinstance(c, int) and 0 <= c < count}
    free = iter(sorted(set(range(count + len(seen))) - set(places.values())))
    return places | {c: next(free) for c in sorted(set(seen) - set(places), key=str)}
