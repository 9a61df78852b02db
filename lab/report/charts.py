"""The charts of the comparison: lines over rounds, bytes or seconds, with bands over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from fedstride.figures.metrics import fact
from fedstride.messages import wire
from server_app.records.row_values import Row, number

from ..plots.curves import MEGABYTES, ROUNDS, SECONDS, by_setting, of_metric, panel
from ..plots.panels import Band, LinePanel, looks_of
from ..results.grouping import Group
from ..results.run_folders import Run, by_headline

LOSSES = ("test/loss", f"{wire.LOCAL}/loss", wire.TRAIN_LOSS)
OF_CLIENTS = (f"{wire.LOCAL}/accuracy", f"{wire.LOCAL}/loss", wire.TRAIN_ACCURACY, wire.TRAIN_LOSS)
"""Metrics of clients whose spread is shown: the first that the runs have."""


def charts(runs: Sequence[Run], colours: Mapping[str, int]) -> list[LinePanel]:
    """For each setting: the metric that decides and the loss by rounds, then by bytes and seconds; the clients."""
    return [
        chart
        for metric, decided in by_headline(runs).items()
        for groups in by_setting(decided)
        for chart in _of_setting(groups, metric, colours)
        if not chart.is_empty
    ]


def _of_setting(groups: list[Group], metric: str, colours: Mapping[str, int]) -> list[LinePanel]:
    shown = [(metric, ROUNDS), *((name, ROUNDS) for name in LOSSES if name != metric and _has(groups, name))][:2]
    shown += [(metric, MEGABYTES)] if _has(groups, "bytes/up") else []
    shown += [(metric, SECONDS)]
    return [*(panel(groups, name, colours, x) for name, x in shown), *_clients(groups, colours)]


def _has(groups: Sequence[Group], metric: str) -> bool:
    return any(row.get(metric) is not None for run_group in groups for run in run_group.runs for row in run.rows)


def _clients(groups: Sequence[Group], colours: Mapping[str, int]) -> list[LinePanel]:
    """Median, lowest and highest client of each round, over the clients of all seeds."""
    rows = {
        run_group.method: [row for run in run_group.runs for row in _rows_of_clients(run)] for run_group in groups
    }
    metric = next(
        (name for name in OF_CLIENTS if any(row.get(name) is not None for part in rows.values() for row in part)),
        None,
    )
    if metric is None:
        return []
    bands = {method: _spread(part, metric) for method, part in rows.items()}
    looks = looks_of({run_group.method: run_group for run_group in groups}, colours)
    note = "line: median client; band: lowest to highest client of the round, over all seeds"
    return [of_metric(metric, "at the clients", groups[0].setting, note, bands, looks, "round")]


def _rows_of_clients(run: Run) -> list[Row]:
    try:
        return [row for row in run.clients.rows if row.get("status") == "used"]
    except ValueError:  # the file cannot be read; the section on failures says so
        return []


def _spread(rows: Sequence[Row], metric: str) -> Band | None:
    by_round: dict[float, list[float]] = {}
    for row in rows:
        value = number(row, metric)
        if value is not None:
            by_round.setdefault(float(row["round"]), []).append(fact(metric).factor * value)
    if not by_round:
        return None
    x = sorted(by_round)
    of_rounds = [by_round[number] for number in x]
    middle, low, high = ([fold(of_round) for of_round in of_rounds] for fold in (statistics.median, min, max))
    return Band(x, middle, low, high, max(map(len, of_rounds)))
