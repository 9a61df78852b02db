"""Plots of the metric that decides, against rounds and seconds: a line per method, a panel per setting."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedstride.metrics import fact, shown, with_unit
from server_app.figures.style import against_rounds
from server_app.rows import Row
from server_app.values import total

from ..results.grouping import Group, group
from ..results.runs import Run, by_headline
from .canvas import Band, legend_below, line, over_rounds, panels, spread_note

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = 3


def accuracy(runs: Sequence[Run]) -> Figure:
    """The metric that decides against rounds, in its displayed unit."""
    return _draw(runs, seconds=False)


def seconds(runs: Sequence[Run]) -> Figure:
    """The metric that decides against the seconds spent on training and aggregating so far.

    The x value of a point is the mean over seeds of the seconds after the same round.
    """
    return _draw(runs, seconds=True)


@dataclass(frozen=True)
class _Panel:
    """The groups of one setting, of runs that are decided by the same metric."""

    metric: str
    setting: str
    groups: list[Group]


def _draw(runs: Sequence[Run], *, seconds: bool) -> Figure:
    parts = {metric: group(decided) for metric, decided in by_headline(runs).items()}
    groups = [each for part in parts.values() for each in part]
    found = [panel for metric, part in parts.items() for panel in _panels(metric, part)]
    methods = list(dict.fromkeys(each.method for each in sorted(groups, key=lambda each: each.order[0])))
    names = ", ".join(map(shown, parts))
    columns = 2 if len(found) == 4 else min(COLUMNS, len(found))
    figure, grid = panels(
        -(-len(found) // columns),
        columns,
        width=7.0 if columns == 1 else 4.2,
        height=4.0 if columns == 1 else 3.2,
        title=f"{names} against {'seconds' if seconds else 'rounds'}\n{spread_note(groups)}",
        sharey=len(parts) == 1,
    )
    axes = list(itertools.chain.from_iterable(grid))
    for place, panel in itertools.zip_longest(axes, found):
        if panel is None:
            place.set_axis_off()
            continue
        for each in panel.groups:
            band = _band(each, panel.metric, seconds)
            last = f": {_last(band, panel.metric)}" if band is not None and len(found) == 1 else ""
            line(place, band, each.method + last, methods.index(each.method))
        against_rounds(place)
        place.set_title(panel.setting, fontsize=9)
        place.set_ylabel(with_unit(panel.metric))
        if seconds:
            place.set_xlabel("time of training and aggregation (s)")
            place.set_xlim(left=0)
    legend_below(figure, axes)
    return figure


def _panels(metric: str, groups: Sequence[Group]) -> list[_Panel]:
    settings = dict.fromkeys(each.setting for each in sorted(groups, key=lambda each: each.order[1]))
    return [_Panel(metric, setting, [each for each in groups if each.setting == setting]) for setting in settings]


def _band(group: Group, metric: str, seconds: bool) -> Band | None:
    band = over_rounds([run.rows for run in group.runs], metric, fact(metric).factor)
    if band is None or not seconds:
        return band
    spent = [_seconds(run.rows) for run in group.runs]
    x = [sum(each[number] for each in spent) / len(spent) for number in band.x]
    return Band(x, band.mean, band.low, band.high, band.n)


def _last(band: Band, metric: str) -> str:
    """The last value, with one digit of a percentage."""
    return f"{band.mean[-1]:.1f} %" if fact(metric).unit == "%" else f"{band.mean[-1]:.4g}"


def _seconds(rows: Sequence[Row]) -> dict[float, float]:
    """Seconds of training and aggregation until the end of each round."""
    each = [total(row, ("seconds/train", "seconds/aggregate")) for row in rows]
    return {float(row["round"]): total for row, total in zip(rows, itertools.accumulate(each), strict=True)}
