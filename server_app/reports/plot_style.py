"""The style of all plots: colours, lines, markers, bars, maps and axes."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

# Can be distinguished in greyscale too: by lightness, line style and marker.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#0b3c5d", "linestyle": (0, ()), "marker": "o"},
    {"color": "#c46f14", "linestyle": (0, (3.7, 1.6)), "marker": "s"},
    {"color": "#2f7d46", "linestyle": (0, (6.4, 1.6, 1, 1.6)), "marker": "^"},
    {"color": "#8e44ad", "linestyle": (0, (1, 1.65)), "marker": "D"},
    {"color": "#b03a2e", "linestyle": (0, (8, 2)), "marker": "v"},
    {"color": "#2389c4", "linestyle": (0, (2, 1, 5, 1)), "marker": "P"},
    {"color": "#555555", "linestyle": (0, (1, 1)), "marker": "X"},
    {"color": "#7c8612", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "<"},
)
"""Of lines. A style of dashes: the lengths of dash, gap, ... in widths of the line."""

DARK = ("#8ec5ee", "#f2a65a", "#7fd39a", "#d09ee6", "#f0887d", "#5fb6ea", "#c0c0c0", "#d3dc5f")
"""The same colours of lines on a dark page."""

BARS: dict[str, Any] = {"color": "#8aa5bd", "edgecolor": STYLES[0]["color"], "linewidth": 0.6}

MAP, DARK_MAP = ("#e2ecf4", "#0b3c5d"), ("#22303c", "#8ec5ee")
"""The ends of a map, on a light and on a dark page; readable in greyscale. White means that there is no value."""


def style(number: int, points: int = 0, colour: int | None = None, above: int = 0) -> dict[str, Any]:
    """The style of line `number`. With many points, only every n-th gets a marker, so that markers do not touch.

    From the ninth line on the colours repeat, with other markers and dashes. `colour`: the number of its colour,
    if it is another one. `above`: how many lines are drawn over it; it is so much wider that it is seen.
    """
    look = STYLES[_dashed(number)]
    every = max(1, points // 20)
    shade = STYLES[(number if colour is None else colour) % len(STYLES)]["color"]
    return {**look, "color": shade, "markersize": 4.2, "linewidth": 1.6 + 2.4 * above, "markevery": every}


def _dashed(number: int) -> int:
    """The style of which line `number` has dashes and marker."""
    return (number + 3 * (number // len(STYLES))) % len(STYLES)


def dash(number: int) -> list[float]:
    """The dashes and gaps of line `number` in pixels, for a line of two pixels; empty for a line without gaps."""
    return [2.0 * length for length in STYLES[_dashed(number)]["linestyle"][1]]


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
    """An empty figure of this size in inches. It is drawn by Agg, without a window and without global state.

    MPLBACKEND has no effect on it. Notebooks set it for all commands that they start, to a package which may be
    missing here, and matplotlib cannot be imported then.
    """
    named = os.environ.pop("MPLBACKEND", None)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    finally:
        if named is not None:
            os.environ["MPLBACKEND"] = named

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
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("map", MAP)
