"""How all pictures look: lines, bars, maps, paper and axes.

Knows colours, marks and matplotlib's canvas; does not know what is drawn. A colour of a picture is changed here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

# Told apart in grey too: by lightness, line and mark.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#0b3c5d", "linestyle": "-", "marker": "o"},
    {"color": "#d9822b", "linestyle": "--", "marker": "s"},
    {"color": "#3a7d44", "linestyle": "-.", "marker": "^"},
    {"color": "#8e44ad", "linestyle": ":", "marker": "D"},
    {"color": "#b03a2e", "linestyle": (0, (8, 2)), "marker": "v"},
    {"color": "#5dade2", "linestyle": "-", "marker": "P"},
    {"color": "#222222", "linestyle": (0, (1, 1)), "marker": "X"},
    {"color": "#9aa51d", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "<"},
)

BARS: dict[str, Any] = {"color": "#8aa5bd", "edgecolor": STYLES[0]["color"], "linewidth": 0.6}

MAP, LIGHTEST = "Blues", 0.12  # light to dark, so that it reads in grey; white is left to what is not there


def style(number: int, points: int = 0) -> dict[str, Any]:
    """The look of line `number`; with so many points that marks would touch, only some are marked.

    Beyond the eighth line colours come again, with another mark.
    """
    look = STYLES[number % len(STYLES)]
    turn = number // len(STYLES)
    marker = STYLES[(number + 3 * turn) % len(STYLES)]["marker"]
    every = max(1, points // 20)
    return {**look, "marker": marker, "markersize": 4.2, "linewidth": 1.6, "markevery": every}


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches, drawn by Agg: no window, no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", dpi=130)
    FigureCanvasAgg(figure)
    return figure


def against_rounds(axes: Axes) -> None:
    """Whole rounds along x, and a light grid."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(nbins="auto", integer=True))
    axes.grid(alpha=0.3)


def map_colours() -> Colormap:
    """The colours of a map, light for small values."""
    import numpy as np
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps[MAP](np.linspace(LIGHTEST, 1.0, 256)))
