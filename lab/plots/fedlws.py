"""Plot of FedLWS: the shrinking factor gamma and the spread tau of each layer over rounds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from server_app.figures.style import STYLES

from ..results.grouping import group
from ..results.runs import Run
from .canvas import legend_below, panels, spread_note
from .layers import by_layer, layers_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def fedlws(runs: Sequence[Run]) -> Figure:
    """gamma (left) and tau (right), one row of panels per method and setting."""
    groups = group(runs)
    lines = len(layers_of(runs, "fedlws/gamma")) <= len(STYLES)
    note = spread_note(groups) if lines else "mean over seeds"
    title = f"FedLWS: shrinking factor gamma and spread tau of the clients' updates\n{note}"
    figure, grid = panels(len(groups), 2, width=4.6, height=2.9, title=title)
    for (left, right), each in zip(grid, groups, strict=True):
        by_layer(left, each.runs, "fedlws/gamma", "gamma (factor of the weights)")
        by_layer(right, each.runs, "fedlws/tau", "tau (norm of weights)")
        for axes in (left, right):
            axes.set_title(f"{each.method}, {each.setting}", fontsize=8)
    legend_below(figure, [axes for row in grid for axes in row])
    return figure
