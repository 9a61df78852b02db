"""A panel as the browser gets it: JSON values, drawn by `drawing.js`.

A line has a value or null at each point of its chart, a map one in each cell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from server_app.reports.plot_style import dash

from ..plots.panels import Map, Panel


def data(panel: Panel) -> dict[str, Any]:
    """What the browser gets: lines, or a map from light to dark with an empty cell where there is no number."""
    if isinstance(panel, Map):
        return _map(panel)
    bands = {name: band for name, band in panel.bands.items() if band is not None}
    points = sorted({value for band in bands.values() for value in band.x})
    lines, above = [], panel.above()
    for name, band in bands.items():
        colour, dashes = panel.look(name)
        line = {"name": name, "colour": colour, "dash": dash(dashes), "above": above[name]}
        line |= {"mean": _at(points, band.x, band.mean)}
        if band.n > 1:
            line |= {"low": _at(points, band.x, band.low), "high": _at(points, band.x, band.high)}
        lines.append(line)
    return {
        "kind": "lines",
        "title": panel.about,
        "caption": panel.of,
        "x": panel.x,
        "unit": panel.unit,
        "digits": panel.digits,
        "points": points,
        "lines": lines,
        "marks": list(panel.marks),
        "log": panel.log,
    }


def _map(panel: Map) -> dict[str, Any]:
    low, high = panel.ends
    return {
        "kind": "heat",
        "title": panel.about,
        "caption": panel.of,
        "x": panel.x,
        "y": panel.y,
        "columns": list(panel.columns),
        "rows": list(panel.rows),
        "values": [[_short(value) for value in row] for row in panel.values.tolist()],
        "low": low,
        "high": high,
    }


def _at(points: Sequence[float], x: Sequence[float], values: Sequence[float]) -> list[float | None]:
    known = dict(zip(x, values, strict=True))
    return [_short(known.get(point)) for point in points]


def _short(value: float | None) -> float | None:
    """With six digits: a page has many values."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")
