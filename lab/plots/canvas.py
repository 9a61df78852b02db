"""Functions that all plots share: panels, bands over seeds, heat maps with numbers, saving.

All plots are readable without colours: lines differ in marker and dash, heat maps in lightness, and small
heat maps contain their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedstride.errors import ConfigError
from server_app.figures.curve import points
from server_app.figures.style import legend_label, map_colours, new_figure, save_figure, style
from server_app.rows import Row

from ..results.files import check_replaceable, writing
from ..results.grouping import Group

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

SOFTWARE = "fedstride plot"

T = TypeVar("T")
"""Written into the metadata of every plot: only a file that contains it is replaced."""

NUMBERS = 240  # heat maps up to this number of cells show the value of each cell
SUFFIXES = (".png", ".svg", ".pdf")


@dataclass(frozen=True)
class Band:
    """A metric of several seeds, at the rounds for which all of them have a value."""

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    n: int


def over_rounds(seeds: Sequence[Sequence[Row]], key: str, factor: float = 1.0) -> Band | None:
    """The metric `key` of each seed's rows, times `factor`; None if no round has it for all seeds."""
    values = [{number: factor * value for number, value in points(rows, key)} for rows in seeds]
    rounds = sorted(set.intersection(*map(set, values))) if values else []
    if not rounds:
        return None
    table = np.array([[each[number] for number in rounds] for each in values], dtype=np.float64)
    mean, low, high = (fold(axis=0).tolist() for fold in (table.mean, table.min, table.max))
    return Band([float(number) for number in rounds], mean, low, high, len(values))


def spread_note(groups: Sequence[Group]) -> str:
    """The meaning of lines and bands, for a title."""
    if all(len(each.runs) == 1 for each in groups):
        return "each line is one run"
    return "line: mean over seeds, band: lowest to highest seed"


def line(axes: Axes, band: Band | None, label: str, number: int) -> None:
    """Draw a band and its mean line in the style of line `number`; nothing if `band` is None."""
    if band is None:
        return
    drawn = style(number, len(band.x))
    axes.plot(band.x, band.mean, label=legend_label(label), **drawn)
    if band.n > 1:
        axes.fill_between(band.x, band.low, band.high, color=drawn["color"], alpha=0.09, linewidth=0)
        for edge in (band.low, band.high):  # dashed as the line, to distinguish overlapping bands
            axes.plot(band.x, edge, color=drawn["color"], linestyle=drawn["linestyle"], linewidth=0.6, alpha=0.7)


def panels(
    rows: int, columns: int, *, width: float, height: float, title: str, **shared: Any
) -> tuple[Figure, list[list[Axes]]]:
    """A figure with a grid of panels, each of this size in inches, and a title above them."""
    figure = new_figure(max(4.5, columns * width), rows * height + 0.6)
    grid = figure.subplots(rows, columns, squeeze=False, **shared)
    figure.suptitle(wrapped(title, figure.get_figwidth()), fontsize=9.5)
    return figure, [list(row) for row in grid]


def wrapped(text: str, inches: float) -> str:
    """Text with line breaks that fits a width in inches, in the font size of titles."""
    import textwrap

    return "\n".join(
        line for paragraph in text.split("\n") for line in textwrap.wrap(paragraph, int(inches * 13.5))
    )


def legend_below(figure: Figure, axes: Iterable[Axes]) -> None:
    """One legend for all panels, below them, with each label once."""
    found: dict[str, Any] = {}
    for each in axes:
        for handle, label in zip(*each.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    if not found:
        return
    longest = max(map(len, found))
    columns = max(1, min(len(found), 4, int(figure.get_figwidth() * 12 / (longest + 8))))
    figure.legend(
        found.values(), found, loc="outside lower center", ncols=columns, frameon=False, fontsize=8, handlelength=4
    )


def heat_map(
    axes: Axes, values: np.ndarray, *, unit: str, form: str = "{:.2f}", limits: tuple[float, float] | None = None
) -> None:
    """A heat map of (rows, columns) from light to dark; NaN is white. Cells show their values if they fit."""
    colours = map_colours()
    low, high = limits or (float(np.nanmin(values)), float(np.nanmax(values)))
    shown = np.ma.masked_invalid(values)
    image = axes.imshow(shown, cmap=colours, aspect="auto", vmin=low, vmax=high, interpolation="nearest")
    figure = axes.figure
    figure.colorbar(image, ax=axes, label=unit, pad=0.01, aspect=30)
    if values.size > NUMBERS:
        return
    for (row, column), value in np.ndenumerate(values):
        if math.isfinite(value):
            red, green, blue, _ = colours((value - low) / (high - low) if high > low else 0.5)
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            axes.text(
                column, row, form.format(value), ha="center", va="center", fontsize=6.5, color="w" if dark else "k"
            )


def whole_numbers(axis: Axis, count: int) -> None:
    """Ticks at whole numbers from 0: at all of them up to 20, otherwise at some."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    axis.set_major_locator(FixedLocator(range(count)) if count <= 20 else MaxNLocator(integer=True))


def some(items: Sequence[T], limit: int) -> list[T]:
    """At most `limit` items, evenly spaced, including the first and the last."""
    if len(items) <= limit:
        return list(items)
    return [items[round(number * (len(items) - 1) / (limit - 1))] for number in range(limit)]


def check_target(path: Path) -> None:
    """Raises ConfigError for another suffix, and for an existing file that is not a plot by fedstride."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{path} is not allowed: the name must end with {', '.join(SUFFIXES)}")
    check_replaceable(path, SOFTWARE, "plot")


def save(figure: Figure, path: Path) -> None:
    """Write a plot. Raises ConfigError as `check_target` does, RunError if the file cannot be written."""
    check_target(path)
    key = "Software" if path.suffix.lower() == ".png" else "Creator"
    with writing(path):
        save_figure(figure, path, metadata={key: SOFTWARE})
