"""What a figure shows: panels of lines and of maps.

There are two that draw them: `canvas.py` into a file, and `lab/report/` for a browser.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from server_app.records.row_values import Row
from server_app.reports.curve import points

from ..results.grouping import Group
from ..results.run_folders import Run

T = TypeVar("T")


@dataclass(frozen=True)
class Band:
    """A metric of several seeds, at the rounds for which all of them have a value."""

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    n: int
    whole: bool = True  # False: a seed has values of later rounds, which are not shown


class Look(NamedTuple):
    """The number of a line's colour, and of its dashes and marker."""

    colour: int
    dash: int


@dataclass(frozen=True)
class LinePanel:
    """Lines over the rounds, or over what was spent until then."""

    about: str  # what is shown
    of: str  # of what: a setting, a run, a layer
    y: str  # label of the values' axis, with the unit
    bands: Mapping[str, Band | None]  # by name; None is not drawn
    x: str = "round"
    title: str = ""  # above the panel, where others stand beside it
    looks: Mapping[str, Look] | None = None  # of each line; None: a colour for each, in order
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

    def look(self, name: str) -> Look:
        """The colour and the dashes of a line."""
        if self.looks is not None:
            return self.looks[name]
        place = [label for label, band in self.bands.items() if band is not None].index(name)
        return Look(place, place)

    def above(self) -> dict[str, int]:
        """For each line, how many lines that are drawn after it run over it: it is drawn so much wider.

        A line runs over another one if it is closer than a hundredth of the panel's height at most of its points.
        """
        drawn = {name: band for name, band in self.bands.items() if band is not None}
        values = {name: np.log(band.mean) if self.log else np.array(band.mean) for name, band in drawn.items()}
        height = np.ptp(np.concatenate(list(values.values()))) if values else 0.0
        names, counts = list(drawn), {}
        for place, name in enumerate(names):
            x = drawn[name].x
            later = (np.interp(x, drawn[other].x, values[other]) for other in names[place + 1 :])
            close = (np.mean(np.abs(values[name] - curve) <= 0.01 * height) > 0.5 for curve in later)
            counts[name] = sum(map(bool, close))
        return counts


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


Panel = LinePanel | Map


@dataclass(frozen=True)
class PlotFigure:
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
    table = np.array([[by_round[number] for number in rounds] for by_round in values], dtype=np.float64)
    mean, low, high = (fold(axis=0).tolist() for fold in (table.mean, table.min, table.max))
    whole = max(map(max, values)) == rounds[-1]
    return Band([float(number) for number in rounds], mean, low, high, len(values), whole)


def band_of(runs: Sequence[Run], key: str) -> Band | None:
    """The band of a metric of these runs."""
    return over_rounds([run.rows for run in runs], key)


def spread_note(groups: Sequence[Group]) -> str:
    """The meaning of lines and bands."""
    if all(len(run_group.runs) == 1 for run_group in groups):
        return "each line is one run"
    ends = ({run.rows[-1]["round"] for run in run_group.runs if run.rows} for run_group in groups)
    cut = ", up to the last round of the shortest seed" if any(len(rounds) > 1 for rounds in ends) else ""
    return f"line: mean over seeds{cut}, band: lowest to highest seed"


def looks_of(groups: Mapping[str, Group], colours: Mapping[str, int]) -> dict[str, Look]:
    """The look of each line of a panel, by its name: its method's colour, and dashes of its own.

    Several lines of a method, as in several settings, or of runs that are not completed, differ in their dashes.
    """
    count = Counter[int]()
    looks = {}
    for name, run_group in groups.items():
        number = colours[run_group.identity]
        looks[name] = Look(number, number + 3 * count[number])
        count[number] += 1
    return looks


def looks_of_parts(names: Iterable[str], colour: int) -> dict[str, Look]:
    """The looks of lines that are parts of one method, in its colour."""
    return {name: Look(colour, place) for place, name in enumerate(names)}


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


FEW_LAYERS = 4
"""Lines of one colour that can be told apart by their dashes."""


def by_layer(
    about: str, of: str, y: str, bands: Mapping[str, Band | None], title: str = "", colour: int = 0
) -> Panel:
    """A quantity of each layer: lines in the colour of the method for a few, a map for many."""
    if len(bands) <= FEW_LAYERS:
        return LinePanel(about, of, y, bands, title=title, looks=looks_of_parts(bands, colour))
    drawn = {name: band for name, band in bands.items() if band is not None}
    rounds = sorted({x for band in drawn.values() for x in band.x})
    values = np.full((len(drawn), len(rounds)), np.nan)
    for row, band in enumerate(drawn.values()):
        values[row, [rounds.index(x) for x in band.x]] = band.mean
    return Map(about, of, "layer", values, numbered(rounds), list(drawn), y, title=title, form="{:.3g}")


def numbered(values: Sequence[float] | range) -> list[str]:
    """Numbers as labels."""
    return [f"{value:g}" for value in values]
