"""Plot of FedNLR: the smallest, mean and largest learning rate of each layer's neurons over rounds."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from server_app.figures.style import against_rounds

from ..results.grouping import group
from ..results.runs import Run
from .canvas import legend_below, line, over_rounds, panels, some, spread_note
from .layers import layers_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LINES = {"max": "largest rate", "mean": "mean rate", "min": "smallest rate"}
COLUMNS, LAYERS = 4, 12


def fednlr(runs: Sequence[Run]) -> Figure:
    """A panel per layer, method and setting; all panels share their axes; the rate axis is logarithmic."""
    groups = group(runs)
    layers = layers_of(runs, "fednlr/rate_mean")
    shown = some(layers, LAYERS)
    columns = min(COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    left_out = f", {len(shown)} of {len(layers)} layers" if len(shown) < len(layers) else ""
    title = f"FedNLR: learning rates of the neurons, averaged over clients{left_out}\n{spread_note(groups)}"
    figure, grid = panels(
        rows * len(groups), columns, width=2.6, height=2.4, title=title, sharex=True, sharey=True
    )
    for start, each in enumerate(groups):
        cells = [axes for row in grid[start * rows : (start + 1) * rows] for axes in row]
        for axes in cells[len(shown) :]:
            axes.set_axis_off()
        for axes, layer in zip(cells, shown, strict=False):
            for number, (end, label) in enumerate(LINES.items()):
                band = over_rounds([run.rows for run in each.runs], f"fednlr/rate_{end}/{layer}")
                line(axes, band, label, number)
            against_rounds(axes)
            axes.set_xlabel("round" if axes in grid[-1] else "")
            axes.set_title(layer, fontsize=8)
            _plain_log_scale(axes)
        name = textwrap.fill(f"{each.method}, {each.setting}".replace("+", "+ "), 34).replace("+ ", "+")
        cells[0].set_ylabel(f"{name}\n\nlearning rate" if len(groups) > 1 else "learning rate", fontsize=7.5)
    legend_below(figure, [axes for row in grid for axes in row])
    return figure


def _plain_log_scale(axes: Axes) -> None:
    """A logarithmic y axis with plain numbers, such as 0.05, instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)
