"""Draws a figure into a file, with matplotlib.

All plots are readable without colours: lines differ in marker and dash, maps in lightness, and small maps contain
their numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedstride.errors import ConfigError
from server_app.reports.plot_style import (
    BARS,
    LONGEST_LABEL,
    against_rounds,
    legend_label,
    map_colours,
    new_figure,
    save_figure,
    shown,
    style,
)

from ..results.output_files import check_replaceable, writing
from .panels import Band, LinePanel, Map, Panel, PlotFigure, some

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Drawn

SOFTWARE = "fedstride plot"
"""Written into the metadata of every plot: only a file that contains it is replaced."""

NUMBERS = 240  # maps up to this number of cells show the value of each cell
NAMES, COLUMN_NAMES = 40, 8  # labels of rows and columns, at most
BARS_HEIGHT = 0.9
SUFFIXES = (".png", ".svg", ".pdf")


def drawn(figure: PlotFigure) -> Drawn:
    """The figure, drawn."""
    grid = figure.grid
    ratios = _heights(grid)
    width, height = figure.size
    inches = max(height * len(grid), sum(ratios or ()))
    made = new_figure(max(4.5, width * len(grid[0])), inches + 0.6)
    rows, columns = len(ratios or grid), len(grid[0])
    axes = made.subplots(
        rows, columns, squeeze=False, height_ratios=ratios, sharex=figure.sharex, sharey=figure.sharey
    )
    made.suptitle(_wrapped(f"{figure.title}\n{'; '.join(figure.notes)}", made.get_figwidth()), fontsize=9.5)
    with_lines = []
    for row, panels in enumerate(grid):
        for column, panel in enumerate(panels):
            place = axes[2 * row + 1 if ratios else row, column]
            if panel is None:
                place.set_axis_off()
                continue
            above = place
            if isinstance(panel, Map):
                above = _draw_map(place, panel, axes[2 * row, column] if ratios else None)
            else:
                _draw_lines(place, panel, last=figure.last_values)
                with_lines.append(place)
            above.set_title(panel.title, fontsize=8)
            if figure.sharey and column:
                place.set_ylabel("")
            is_lowest = row + 1 == len(grid) or grid[row + 1][column] is None
            place.set_xlabel(panel.x if is_lowest else "")
            if figure.own_legends and isinstance(panel, LinePanel):
                place.legend(fontsize=7, handlelength=4, framealpha=0.8, edgecolor="none")
    if not figure.own_legends:
        _legend_below(made, with_lines)
    return made


def _heights(grid: Sequence[Sequence[Panel | None]]) -> list[float] | None:
    """The height of bars and map in each row; None if there are no bars."""
    first = [row[0] for row in grid]
    if not any(isinstance(panel, Map) and panel.totals for panel in first):
        return None
    rows = [len(panel.rows) for panel in first if isinstance(panel, Map)]
    return [height for count in rows for height in (BARS_HEIGHT, min(6.0, max(0.9, 0.26 * count)))]


def _draw_lines(axes: Axes, panel: LinePanel, *, last: bool) -> None:
    above = panel.above()
    for name, band in panel.bands.items():
        if band is not None:
            end = _last(band, panel) if last else ""
            colour, dashes = panel.look(name)
            look = style(dashes, len(band.x), colour, above[name])
            _draw_band(axes, band, shown(name, LONGEST_LABEL) + end, look)
    against_rounds(axes)
    axes.set_ylabel(panel.y, fontsize=8)
    if panel.log:
        _plain_log_scale(axes)
    else:
        axes.ticklabel_format(axis="y", useOffset=False)
    if panel.least is not None:
        axes.set_ylim(panel.least, 1.05 * axes.get_ylim()[1])
    if panel.zero:
        axes.axhline(0.0, color="k", linewidth=0.7)
    for mark in panel.marks:
        axes.axvline(mark, color="k", linestyle=":", linewidth=1)


def _last(band: Band, panel: LinePanel) -> str:
    """The end of a line for the legend, with its place if that is not the end of all seeds."""
    return f": {_number(band.mean[-1], panel)}" + ("" if band.whole else f" at {band.x[-1]:.4g}")


def _number(value: float, panel: LinePanel) -> str:
    """With one digit of a percentage."""
    return f"{value:.1f} %" if panel.unit == " %" else f"{value:.4g}"


def _draw_band(axes: Axes, band: Band, label: str, look: Mapping[str, Any]) -> None:
    """A mean line, and the band around it."""
    axes.plot(band.x, band.mean, label=legend_label(label), **look)
    if band.n > 1:
        axes.fill_between(band.x, band.low, band.high, color=look["color"], alpha=0.09, linewidth=0)
        for edge in (band.low, band.high):  # dashed as the line, to distinguish overlapping bands
            axes.plot(band.x, edge, color=look["color"], linestyle=look["linestyle"], linewidth=0.6, alpha=0.7)


def _draw_map(axes: Axes, panel: Map, above: Axes | None) -> Axes:
    """The map, and the bars of its totals; the upper one of both."""
    columns = panel.values.shape[1]
    if not panel.is_empty:
        heat_map(axes, panel)
    axes.set_ylabel(panel.y, fontsize=8)
    _label(axes.yaxis, panel.rows, 20 if all(name.isdecimal() for name in panel.rows) else NAMES)
    _label(axes.xaxis, [name.split(" ")[0] for name in panel.columns], COLUMN_NAMES if above is None else 20)
    if above is None:
        return axes
    above.bar(range(columns), np.nansum(panel.values, axis=0), **BARS)
    above.set_ylabel(panel.unit, fontsize=8)
    above.set_xlim(-0.5, columns - 0.5)
    above.set_xticks([])
    return above


def heat_map(axes: Axes, panel: Map) -> None:
    """The cells, from light to dark; NaN is white. They show their values if they fit."""
    colours, values, (low, high) = map_colours(), panel.values, panel.ends
    cells = np.ma.masked_invalid(values)
    image = axes.imshow(cells, cmap=colours, aspect="auto", vmin=low, vmax=high, interpolation="nearest")
    axes.figure.colorbar(image, ax=axes, label=panel.unit, pad=0.01, aspect=30)
    if values.size > NUMBERS:
        return
    for (row, column), value in np.ndenumerate(values):
        if math.isfinite(value):
            red, green, blue, _ = colours((value - low) / (high - low) if high > low else 0.5)
            colour = "w" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.5 else "k"
            text = panel.form.format(value)
            axes.text(column, row, text, ha="center", va="center", fontsize=6.5, color=colour)


def _label(axis: Axis, names: Sequence[str], most: int) -> None:
    """The names of rows or columns; of numbers round ones, if there are many."""
    shown_here = range(len(names))
    if len(names) > most:
        numbers = [float(name) if name.isdecimal() else math.nan for name in names]
        steps = (digit * 10**power for power in range(7) for digit in (1, 2, 5))
        picked = ([at for at, number in enumerate(numbers) if number % step == 0] for step in steps)
        few = next((positions for positions in picked if len(positions) <= most), [])
        shown_here = few or some(range(len(names)), most)  # type: ignore[assignment]
    labels = [legend_label(shown(names[at], LONGEST_LABEL)) for at in shown_here]
    axis.set_ticks(shown_here, labels, fontsize=min(8.0, 150 / max(len(labels), 1)))


def _plain_log_scale(axes: Axes) -> None:
    """A logarithmic y axis with plain numbers, such as 0.05, instead of powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)


def _wrapped(text: str, inches: float) -> str:
    """Text with line breaks that fits a width in inches, in the font size of titles."""
    import textwrap

    return "\n".join(
        line for paragraph in text.split("\n") for line in textwrap.wrap(paragraph, int(inches * 13.5))
    )


def _legend_below(figure: Drawn, axes: Iterable[Axes]) -> None:
    """One legend for all panels, below them, with each label once."""
    handles: dict[str, Any] = {}
    for panel_axes in axes:
        for handle, label in zip(*panel_axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if not handles:
        return
    longest = max(map(len, handles))
    columns = max(1, min(len(handles), 4, int(figure.get_figwidth() * 12 / (longest + 8))))
    figure.legend(
        handles.values(),
        handles,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=8,
        handlelength=4,
    )


def check_target(path: Path) -> None:
    """Raises ConfigError for another suffix, and for an existing file that is not a plot by fedstride."""
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{path} is not allowed: the name must end with {', '.join(SUFFIXES)}")
    check_replaceable(path, SOFTWARE, "plot")


def save(figure: Drawn, path: Path) -> None:
    """Write a plot. Raises ConfigError as `check_target` does, RunError if the file cannot be written."""
    check_target(path)
    key = "Software" if path.suffix.lower() == ".png" else "Creator"
    with writing(path):
        save_figure(figure, path, metadata={key: SOFTWARE})
