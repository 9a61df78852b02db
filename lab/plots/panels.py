"""What a figure shows: panels of lines and of maps. Knows neither runs' kinds nor how a panel is drawn.

There are two that draw them: `canvas.py` into a file, and `lab/report/` for a browser.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from server_app.figures.curve import points
from server_app.figures.style import STYLES
from server_app.rows import Row

from ..results.grouping import Group
from ..results.runs import Run

T = TypeVar("T")


@dataclass(frozen=True)
class Band:
    """A metric of several seeds, at the rounds for which all of them have a value."""

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    n: int


@dataclass(frozen=True)
class Lines:
    """Lines over the rounds, or over what was spent until then."""

    about: str  # what is shown
    of: str  # of what: a setting, a run, a layer
    y: str  # label of the values' axis, with the unit
    bands: Mapping[str, Band | None]  # by name; None is not drawn
    x: str = "round"
    title: str = ""  # above the panel, where others stand beside it
    colours: Mapping[str, int] | None = None  # the number of each line's style; None: the order
    unit: str = ""  # behind a value
    digits: int | None = None  # decimals of a value; None: four significant digits
    marks: Sequence[float] = ()  # dotted vertical lines
    log: bool = False  # the values' axis is logarithmic
    least: float | None = None  # the end of the values' axis
    zero: bool = False  # a line at zero

    @property
    def is_empty(self) -> bool:
        """Whether it has no line."""
        return not any(self.bands.values())

    def number(self, name: str) -> int:
        """The number of a line's style."""
        found = [each for each, band in self.bands.items() if band is not None]
        return found.index(name) if self.colours is None else self.colours.get(name, 0)


@dataclass(frozen=True)
class Map:
    """A map of numbers, from light to dark; NaN: there is none."""

    about: str
    of: str
    y: str  # what a row is
    values: np.ndarray  # (rows, columns)
    columns: Sequence[str]
    rows: Sequence[str]
    unit: str  # label of the scale
    x: str = "round"
    title: str = ""
    limits: tuple[float, float] | None = None
    form: str = "{:.2f}"  # of a number in its cell
    totals: bool = False  # bars of the columns' sums stand above

    @property
    def is_empty(self) -> bool:
        """Whether it has no number."""
        return not np.isfinite(self.values).any()

    @property
    def ends(self) -> tuple[float, float]:
        """The lightest and the darkest number."""
        return self.limits or (float(np.nanmin(self.values)), float(np.nanmax(self.values)))


Panel = Lines | Map


@dataclass(frozen=True)
class Figure:
    """A figure; `parts`: its panels, row by row, or column by column if `columns`.

    `size`: inches of a panel. `sharex`, `sharey`: all panels have this axis in common. `folded`: parts from this
    one on are details.
    """

    title: str
    notes: Sequence[str]
    parts: Sequence[Sequence[Panel]]
    size: tuple[float, float]
    columns: bool = False
    sharex: bool = False
    sharey: bool = False
    own_legends: bool = False  # the panels' lines have different names
    last_values: bool = False  # the legend has the last value of each line
    folded: int | None = None

    @property
    def grid(self) -> list[list[Panel | None]]:
        """The panels as rows, of the same length."""
        length = max(map(len, self.parts))
        rows = [[*part, *[None] * (length - len(part))] for part in self.parts]
        return [list(row) for row in zip(*rows, strict=True)] if self.columns else rows


def over_rounds(seeds: Sequence[Sequence[Row]], key: str, factor: float = 1.0) -> Band | None:
    """The metric `key` of each seed's rows, times `factor`; None if no round has it for all seeds."""
    values = [{number: factor * value for number, value in points(rows, key)} for rows in seeds]
    rounds = sorted(set.intersection(*map(set, values))) if values else []
    if not rounds:
        return None
    table = np.array([[each[number] for number in rounds] for each in values], dtype=np.float64)
    mean, low, high = (fold(axis=0).tolist() for fold in (table.mean, table.min, table.max))
    return Band([float(number) for number in rounds], mean, low, high, len(values))


def band_of(runs: Sequence[Run], key: str) -> Band | None:
    """The band of a metric of these runs."""
    return over_rounds([run.rows for run in runs], key)


def spread_note(groups: Sequence[Group]) -> str:
    """The meaning of lines and bands."""
    if all(len(each.runs) == 1 for each in groups):
        return "each line is one run"
    return "line: mean over seeds, band: lowest to highest seed"


def some(items: Sequence[T], limit: int) -> list[T]:
    """At most `limit` items, evenly spaced, including the first and the last."""
    if len(items) <= limit:
        return list(items)
    return [items[round(number * (len(items) - 1) / (limit - 1))] for number in range(limit)]


def left_out(shown: Sequence[T], of: Sequence[T], what: str) -> list[str]:
    """A note, if not all are shown."""
    return [f"{len(shown)} of {len(of)} {what}"] if len(shown) < len(of) else []


def layers_of(runs: Sequence[Run], prefix: str) -> list[str]:
    """The layers that have the metric `prefix/<layer>`, in the network's order."""
    keys = (key for run in runs for row in run.rows for key in row if key.startswith(f"{prefix}/"))
    return list(dict.fromkeys(key.removeprefix(f"{prefix}/") for key in keys))


def by_layer(about: str, of: str, y: str, bands: Mapping[str, Band | None], title: str = "") -> Panel:
    """A quantity of each layer: lines for a few, a map for many."""
    if len(bands) <= len(STYLES):
        return Lines(about, of, y, bands, title=title)
    found = {name: band for name, band in bands.items() if band is not None}
    rounds = sorted({x for band in found.values() for x in band.x})
    values = np.full((len(found), len(rounds)), np.nan)
    for row, band in enumerate(found.values()):
        values[row, [rounds.index(x) for x in band.x]] = band.mean
    return Map(about, of, "layer", values, numbered(rounds), list(found), y, title=title, form="{:.3g}")


def numbered(values: Sequence[float] | range) -> list[str]:
    """Numbers as labels."""
    return [f"{value:g}" for value in values]
