"""What the browser draws: charts of lines, and heat maps. Knows nothing of runs, HTML, or how it is drawn.

A line has a value or null at each point of its chart, a heat map one in each cell.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..plots.canvas import Band

COLOURS = 8
"""The page's colours of lines; from the ninth line on they repeat, with other dashes."""


@dataclass(frozen=True)
class Chart:
    """One chart; `lines` have name, colour (a number), mean, and low and high if there is a band.

    `digits`: decimals of a value under the pointer; None: four significant digits. `marks`: points with a dotted
    vertical line. `log`: the values' axis is logarithmic.
    """

    title: str
    caption: str
    x: str
    unit: str
    digits: int | None
    points: list[float]
    lines: list[dict[str, Any]]
    marks: list[float] = field(default_factory=list)
    log: bool = False

    def data(self) -> dict[str, Any]:
        """What the browser gets, as JSON values."""
        return {"kind": "lines", **vars(self)}


@dataclass(frozen=True)
class Heat:
    """A heat map: `values` (rows, columns) from light to dark, an empty cell where there is none."""

    title: str
    caption: str
    x: str
    y: str
    columns: list[str]
    rows: list[str]
    values: list[list[float | None]]
    low: float
    high: float

    def data(self) -> dict[str, Any]:
        """What the browser gets, as JSON values."""
        return {"kind": "heat", **vars(self)}


def chart(
    title: str,
    caption: str,
    bands: Mapping[str, Band | None],
    *,
    x: str = "rounds",
    colours: Mapping[str, int] | None = None,
    unit: str = "",
    digits: int | None = None,
    marks: Sequence[float] = (),
    log: bool = False,
) -> Chart:
    """A chart with a line for each band, by name; without `colours`, each has its own."""
    found = {name: band for name, band in bands.items() if band is not None}
    points = sorted({value for band in found.values() for value in band.x})
    lines = []
    for number, (name, band) in enumerate(found.items()):
        line: dict[str, Any] = {
            "name": name,
            "colour": number if colours is None else colours.get(name, 0),
            "mean": _at(points, band.x, band.mean),
        }
        if band.n > 1:
            line |= {"low": _at(points, band.x, band.low), "high": _at(points, band.x, band.high)}
        lines.append(line)
    return Chart(title, caption, x, unit, digits, points, lines, list(marks), log)


def heat(
    title: str,
    caption: str,
    values: np.ndarray,
    *,
    x: str = "round",
    columns: Sequence[str],
    y: str,
    rows: Sequence[str],
    limits: tuple[float, float] | None = None,
) -> Heat | None:
    """A heat map of (rows, columns), NaN where there is no value; None if there are no values."""
    if not np.isfinite(values).any():
        return None
    low, high = limits or (float(np.nanmin(values)), float(np.nanmax(values)))
    cells = [[_short(value) for value in row] for row in values.tolist()]
    return Heat(title, caption, x, y, list(columns), list(rows), cells, low, high)


def _at(points: Sequence[float], x: Sequence[float], values: Sequence[float]) -> list[float | None]:
    known = dict(zip(x, values, strict=True))
    return [_short(known.get(point)) for point in points]


def _short(value: float | None) -> float | None:
    """With six digits: a page has many values."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
