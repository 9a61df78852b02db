"""The charts of the comparison: lines over rounds, bytes or seconds, with bands over seeds. Knows no HTML."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping, Sequence

from fedstride import wire
from fedstride.metrics import fact, shown, with_unit
from server_app.rows import Row
from server_app.values import number, total

from ..plots.canvas import Band, over_rounds
from ..results.grouping import Group, group
from ..results.runs import Run, by_headline
from .drawings import Chart, chart

LOSSES = ("test/loss", f"{wire.LOCAL}/loss", wire.TRAIN_LOSS)
OF_CLIENTS = (f"{wire.LOCAL}/accuracy", f"{wire.LOCAL}/loss", wire.TRAIN_ACCURACY, wire.TRAIN_LOSS)
"""Metrics of clients whose spread is shown: the first that the runs have."""


def charts(runs: Sequence[Run]) -> list[Chart]:
    """For each setting: the metric that decides and the loss by rounds, then by bytes and seconds; the clients."""
    found: list[Chart] = []
    methods = numbers_of_methods(runs)
    for metric, decided in by_headline(runs).items():
        groups = group(decided)
        for setting in dict.fromkeys(each.setting for each in sorted(groups, key=lambda each: each.order[1])):
            chosen = [each for each in groups if each.setting == setting]
            found += _of_setting(chosen, metric, setting, methods)
    return found


def numbers_of_methods(runs: Sequence[Run]) -> dict[str, int]:
    """The place of each method in the report, which decides its colour in all charts."""
    order = sorted(group(runs), key=lambda each: each.order[0])
    return {name: number for number, name in enumerate(dict.fromkeys(each.method for each in order))}


def _of_setting(groups: list[Group], metric: str, setting: str, colours: Mapping[str, int]) -> list[Chart]:
    loss = next((name for name in LOSSES if name != metric and _has(groups, name)), None)
    made: list[Chart | None] = [_chart(groups, metric, setting, colours, "rounds", None)]
    if loss is not None:
        made.append(_chart(groups, loss, setting, colours, "rounds", None))
    if _has(groups, "bytes/up"):
        made.append(_chart(groups, metric, setting, colours, "megabytes sent and received so far", _megabytes))
    made.append(_chart(groups, metric, setting, colours, "seconds of training and aggregation", _seconds))
    made.append(_clients(groups, setting, colours))
    return [each for each in made if each is not None and each.lines]


def _has(groups: Sequence[Group], metric: str) -> bool:
    return any(row.get(metric) is not None for each in groups for run in each.runs for row in run.rows)


def _chart(
    groups: Sequence[Group],
    metric: str,
    setting: str,
    colours: Mapping[str, int],
    x: str,
    spent: Callable[[Sequence[Row]], dict[float, float]] | None,
) -> Chart:
    bands = {}
    for each in groups:
        band = over_rounds([run.rows for run in each.runs], metric, fact(metric).factor)
        if band is not None:
            bands[each.method] = band if spent is None else _moved(band, [spent(run.rows) for run in each.runs])
    several = any(band.n > 1 for band in bands.values())
    caption = f"{setting}. " + (
        "Line: mean over seeds; band: lowest to highest seed." if several else "One run each."
    )
    return _drawn(f"{shown(metric)} by {x.split(' ')[0]}", caption, x, metric, bands, colours)


def _moved(band: Band, spent: Sequence[Mapping[float, float]]) -> Band:
    """The band against the mean over seeds of what is spent after the same round."""
    x = [sum(each.get(number, 0.0) for each in spent) / len(spent) for number in band.x]
    return Band(x, band.mean, band.low, band.high, band.n)


def _megabytes(rows: Sequence[Row]) -> dict[float, float]:
    return _sums(rows, ("bytes/up", "bytes/down"), 1e-6)


def _seconds(rows: Sequence[Row]) -> dict[float, float]:
    return _sums(rows, ("seconds/train", "seconds/aggregate"), 1.0)


def _sums(rows: Sequence[Row], keys: Sequence[str], factor: float) -> dict[float, float]:
    each = [factor * total(row, keys) for row in rows]
    return {float(row["round"]): total for row, total in zip(rows, itertools.accumulate(each), strict=True)}


def _clients(groups: Sequence[Group], setting: str, colours: Mapping[str, int]) -> Chart | None:
    """Median, lowest and highest client of each round, over the clients of all seeds."""
    rows = {each.method: [row for run in each.runs for row in _rows_of_clients(run)] for each in groups}
    metric = next(
        (name for name in OF_CLIENTS if any(row.get(name) is not None for part in rows.values() for row in part)),
        None,
    )
    if metric is None:
        return None
    bands = {method: band for method, part in rows.items() if (band := _spread(part, metric)) is not None}
    caption = f"{setting}. Line: median client; band: lowest to highest client of the round, over all seeds."
    return _drawn(f"{shown(metric)} at the clients", caption, "rounds", metric, bands, colours)


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
    found = [by_round[number] for number in x]
    middle, low, high = ([fold(each) for each in found] for fold in (statistics.median, min, max))
    return Band(x, middle, low, high, max(map(len, found)))


def _drawn(
    title: str, caption: str, x: str, metric: str, bands: Mapping[str, Band], colours: Mapping[str, int]
) -> Chart:
    known = fact(metric)
    unit, digits = (" %", 2) if known.unit == "%" else (f" {known.unit}" if known.unit else "", 4)
    caption = f"{caption} {with_unit(metric)}."
    return chart(title, caption, bands, x=x, colours=colours, unit=unit, digits=digits)
