"""The style of all plots: colours, lines, markers, bars, maps and axes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

# Can be distinguished in greyscale too: by lightness, line style and marker.
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

MAP, LIGHTEST = "Blues", 0.12  # from light to dark, readable in greyscale; white means that there is no value


def style(number: int, points: int = 0) -> dict[str, Any]:
    """The style of line `number`. With many points, only every n-th gets a marker, so that markers do not touch.

    From the ninth line on the colours repeat, with other markers.
    """
    look = STYLES[number % len(STYLES)]
    turn = number // len(STYLES)
    marker = STYLES[(number + 3 * turn) % len(STYLES)]["marker"]
    every = max(1, points // 20)
    return {**look, "marker": marker, "markersize": 4.2, "linewidth": 1.6, "markevery": every}


LONGEST, LONGEST_LABEL = 120, 50
"""Characters of a line of text in a plot, and of a label that takes its place from the drawing."""


def literal() -> AbstractContextManager[None]:
    """Inside, every text of a plot is drawn as it is: a dollar sign does not begin a formula.

    Texts are also made while a figure is saved, so drawing and saving both belong inside.
    """
    from matplotlib import rc_context

    return rc_context({"text.parse_math": False})


def shown(text: str, longest: int = LONGEST) -> str:
    """A text for a plot: characters that are not printable are marked, and lines that are too long are cut.

    Names come from runs of other people. A font has no glyph for such characters, and the layout no place for a
    long line.
    """
    lines = ("".join(char if char.isprintable() else "\ufffd" for char in line) for line in text.split("\n"))
    return "\n".join(line if len(line) <= longest else f"{line[: longest - 1]}\u2026" for line in lines)


def legend_label(text: str) -> str:
    """A label that appears in the legend: matplotlib leaves out those that begin with an underscore."""
    return f" {text}" if text.startswith("_") else text


def save_figure(figure: Figure, file: Any, **options: Any) -> None:
    """Write a figure to a path or an open file, with every text as `shown` makes it."""
    from matplotlib.text import Text

    with literal():
        for text in figure.findobj(Text):
            text.set_parse_math(False)
            text.set_text(shown(text.get_text()))
        figure.savefig(file, **options)


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of this size in inches. It is drawn by Agg, without a window and without global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", dpi=130)
    FigureCanvasAgg(figure)
    return figure


def against_rounds(axes: Axes) -> None:
    """Set up axes with whole rounds along x, and a light grid."""
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
