"""Plot of the norm-based divergence analysis: N, E and step, of the whole model and of every layer.

N is the norm of the averaged update of the clients, E the mean norm of the clients' updates, step the norm of
the update that the server applied; all in the units of the weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from server_app.figures.style import against_rounds

from ..results.grouping import group
from ..results.runs import Run
from .canvas import legend_below, line, over_rounds, panels, some, spread_note
from .layers import layers_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEANING = {"N": "N, norm of the averaged update", "E": "E, mean norm of updates", "step": "step of the server"}
ROWS = 11  # layers shown at most


def norms(runs: Sequence[Run]) -> Figure:
    """Columns N, E and step; a row for the whole model and one per layer; a line per method and setting."""
    groups = group(runs)
    layers = layers_of(runs, "norms/N")
    shown = some(layers, ROWS)
    several = len({each.setting for each in groups}) > 1
    left_out = f", {len(shown)} of {len(layers)} layers" if len(shown) < len(layers) else ""
    title = f"norms of the updates in each round (units of the weights){left_out}\n{spread_note(groups)}"
    figure, grid = panels(1 + len(shown), 3, width=3.3, height=2.1, title=title, sharex=True)
    for row, layer in zip(grid, [None, *shown], strict=True):
        for axes, (symbol, meaning) in zip(row, MEANING.items(), strict=True):
            key = f"norms/{symbol}" + (f"/{layer}" if layer else "")
            for number, each in enumerate(groups):
                label = f"{each.method}, {each.setting}" if several else each.method
                line(axes, over_rounds([run.rows for run in each.runs], key), label, number)
            against_rounds(axes)
            axes.set_xlabel("round" if row is grid[-1] else "")
            axes.set_ylabel(f"{symbol} ({layer or 'whole model'})", fontsize=8)
            axes.set_ylim(bottom=0)
            if row is grid[0]:
                axes.set_title(meaning, fontsize=9)
    legend_below(figure, grid[0])
    return figure
