"""A metric against rounds, bytes and seconds: a line per method, a panel per setting."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedstride.figures.metrics import fact, shown, with_unit
from server_app.records.row_values import Row, total

from ..results.grouping import Group, group
from ..results.run_folders import Run, by_headline
from .panels import Band, LinePanel, Look, PlotFigure, looks_of, over_rounds, spread_note

COLUMNS = 3
ROUNDS, SECONDS, MEGABYTES = "rounds", "seconds", "megabytes"
SPENT = {
    SECONDS: ("seconds of training and aggregation", ("seconds/train", "seconds/aggregate"), 1.0),
    MEGABYTES: ("megabytes sent and received so far", ("bytes/up", "bytes/down"), 1e-6),
}
"""Label of the axis, and what is added up, times a factor."""


def accuracy(runs: Sequence[Run], colours: Mapping[str, int]) -> PlotFigure:
    """The metric that decides against rounds, in its displayed unit."""
    return _figure(runs, colours, ROUNDS)


def seconds(runs: Sequence[Run], colours: Mapping[str, int]) -> PlotFigure:
    """The metric that decides against the seconds spent on training and aggregating so far."""
    return _figure(runs, colours, SECONDS)


def _figure(runs: Sequence[Run], colours: Mapping[str, int], x: str) -> PlotFigure:
    parts = by_headline(runs)
    panels = [
        panel(groups, metric, colours, x) for metric, decided in parts.items() for groups in by_setting(decided)
    ]
    columns = 2 if len(panels) == 4 else min(COLUMNS, len(panels))
    return PlotFigure(
        f"{', '.join(map(shown, parts))} against {x}",
        [spread_note([run_group for decided in parts.values() for run_group in group(decided)])],
        [panels[start : start + columns] for start in range(0, len(panels), columns)],
        (7.0, 4.0) if columns == 1 else (4.2, 3.2),
        sharey=len(parts) == 1,
        last_values=len(panels) == 1,
    )


def by_setting(runs: Sequence[Run]) -> list[list[Group]]:
    """The groups of each setting, in the order of settings."""
    groups = group(runs)
    settings = dict.fromkeys(
        run_group.setting for run_group in sorted(groups, key=lambda run_group: run_group.order[1])
    )
    return [[run_group for run_group in groups if run_group.setting == setting] for setting in settings]


def panel(groups: Sequence[Group], metric: str, colours: Mapping[str, int], x: str) -> LinePanel:
    """A metric of the groups of one setting against rounds, or what is spent.

    The x value of a point is the mean over seeds of what is spent after the same round.
    """
    setting, known = groups[0].setting, fact(metric)
    bands = {}
    for run_group in groups:
        band = over_rounds([run.rows for run in run_group.runs], metric, known.factor)
        bands[run_group.method] = band if band is None or x == ROUNDS else _moved(band, run_group, x)
    looks = looks_of({run_group.method: run_group for run_group in groups}, colours)
    return of_metric(
        metric, f"by {x}", setting, spread_note(groups), bands, looks, "round" if x == ROUNDS else SPENT[x][0]
    )


def of_metric(
    metric: str,
    about: str,
    setting: str,
    note: str,
    bands: Mapping[str, Band | None],
    looks: Mapping[str, Look],
    x: str,
) -> LinePanel:
    """Lines of a metric, in its displayed unit."""
    known, y = fact(metric), with_unit(metric)
    unit, digits = (" %", 2) if known.unit == "%" else (f" {known.unit}" if known.unit else "", 4)
    return LinePanel(
        f"{shown(metric)} {about}",
        f"{setting}. {note.capitalize()}. {y}.",
        y,
        bands,
        x,
        title=setting,
        looks=looks,
        unit=unit,
        digits=digits,
    )


def _moved(band: Band, group: Group, x: str) -> Band:
    """The band against the mean over seeds of what is spent after the same round."""
    spent = [_sums(run.rows, *SPENT[x][1:]) for run in group.runs]
    at = [sum(sums.get(number, 0.0) for sums in spent) / len(spent) for number in band.x]
    return replace(band, x=at)


def _sums(rows: Sequence[Row], keys: Sequence[str], factor: float) -> dict[float, float]:
    amounts = [factor * total(row, keys) for row in rows]
    return {float(row["round"]): total for row, total in zip(rows, itertools.accumulate(amounts), strict=True)}
