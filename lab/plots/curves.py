"""Plots of test accuracy against rounds and against seconds: a line per method, a panel per setting."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

from server_app.figures.style import against_rounds
from server_app.rows import Row

from ..results.grouping import Group, group
from ..results.runs import Run
from .canvas import Band, legend_below, line, over_rounds, panels, spread_note

if TYPE_CHECKING:
    from matplotlib.figure import Figure

METRIC = "test/accuracy"
COLUMNS = 3


def accuracy(runs: Sequence[Run]) -> Figure:
    """Test accuracy in percent against rounds."""
    return _draw(runs, seconds=False)


def seconds(runs: Sequence[Run]) -> Figure:
    """Test accuracy in percent against the seconds spent on training and aggregating so far.

    The x value of a point is the mean over seeds of the seconds after the same round.
    """
    return _draw(runs, seconds=True)


def _draw(runs: Sequence[Run], *, seconds: bool) -> Figure:
    groups = group(runs)
    settings = list(dict.fromkeys(each.setting for each in sorted(groups, key=lambda each: each.order[1])))
    methods = list(dict.fromkeys(each.method for each in sorted(groups, key=lambda each: each.order[0])))
    columns = 2 if len(settings) == 4 else min(COLUMNS, len(settings))
    figure, grid = panels(
        -(-len(settings) // columns),
        columns,
        width=7.0 if columns == 1 else 4.2,
        height=4.0 if columns == 1 else 3.2,
        title=f"test accuracy against {'seconds' if seconds else 'rounds'}\n{spread_note(groups)}",
        sharey=True,
    )
    axes = list(itertools.chain.from_iterable(grid))
    for panel, setting in itertools.zip_longest(axes, settings):
        if setting is None:
            panel.set_axis_off()
            continue
        for each in groups:
            if each.setting == setting:
                band = _band(each, seconds)
                last = f": {band.mean[-1]:.1f} %" if band is not None and len(settings) == 1 else ""
                line(panel, band, each.method + last, methods.index(each.method))
        against_rounds(panel)
        panel.set_title(setting, fontsize=9)
        panel.set_ylabel("test accuracy (%)")
        if seconds:
            panel.set_xlabel("time of training and aggregation (s)")
            panel.set_xlim(left=0)
    legend_below(figure, axes)
    return figure


def _band(group: Group, seconds: bool) -> Band | None:
    band = over_rounds([run.rows for run in group.runs], METRIC, 100.0)
    if band is None or not seconds:
        return band
    spent = [_seconds(run.rows) for run in group.runs]
    x = [sum(each[number] for each in spent) / len(spent) for number in band.x]
    return Band(x, band.mean, band.low, band.high, band.n)


def _seconds(rows: Sequence[Row]) -> dict[float, float]:
    """Seconds of training and aggregation until the end of each round."""
    each = [row.get("seconds/train", 0.0) + row.get("seconds/aggregate", 0.0) for row in rows]
    return {float(row["round"]): total for row, total in zip(rows, itertools.accumulate(each), strict=True)}
