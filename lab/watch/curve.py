"""A curve of characters: columns filled from below, each in eighths of a character, or with `#` in plain ASCII."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite

EIGHTHS = " ▁▂▃▄▅▆▇█"


def curve(values: Sequence[float], *, width: int, height: int, ascii_only: bool = False) -> list[str]:
    """`height` lines of at most `width` characters, the first is the top; empty without two finite values.

    A value's column is filled in proportion to its distance from the smallest value, and at least by one eighth.
    Of more values than columns, each column shows the last one of its part. A value that is not finite is an empty
    column.
    """
    picked = _picked(values, width)
    finite = [value for value in picked if isfinite(value)]
    if len(finite) < 2:
        return []
    low, high = min(finite), max(finite)
    full = 8 * height
    tall = [
        0 if not isfinite(value) else 1 + round((full - 1) * ((value - low) / (high - low) if high > low else 0.5))
        for value in picked
    ]
    lines = []
    for row in range(height - 1, -1, -1):
        cells = [min(max(eighths - 8 * row, 0), 8) for eighths in tall]
        lines.append("".join(("#" if cell else " ") if ascii_only else EIGHTHS[cell] for cell in cells))
    return lines


def _picked(values: Sequence[float], width: int) -> list[float]:
    if len(values) <= width:
        return list(values)
    return [values[(column + 1) * len(values) // width - 1] for column in range(width)]
