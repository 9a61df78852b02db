"""Bins of a column whose edges are round numbers, so that those of several sites can be compared.

A site makes its bins alone: nothing is asked twice, and no edge comes from a server, so no two answers differ by a
few rows. The edges come from one tree that is the same everywhere and knows no data:

    (-inf, inf) is split at 0, (0, inf) at 1, (10^k, inf) at 10^(k+1), (0, 10^k) at 10^(k-1), and a part of
    [10^k, 10^(k+1)) at the roundest number in it: a multiple of 100, 50, 10, 5 or 1 units of 10^(k-2), the one
    nearest to the middle; and below 0 as above it, with the sign changed.

A site splits a node where both sides have at least q = max(least, floor(n / MOST)) of its n rows. Where one side
has fewer, these belong to the other side, and it goes on there without an edge. So each bin has at least q rows,
and the edges say no more of a row than that. Sites with similar rows split most nodes alike: what they have in
common are the edges that are equal.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

MOST: Final = 32
"""Bins of a column."""

LOWEST, HIGHEST = -12, 37
"""The exponents of the smallest and the largest power of ten that is an edge."""

STEPS = (100, 50, 10, 5, 1)
"""Units of a decade, which has 100 to 1000 of them: multiples of the first are the roundest numbers."""

Place = tuple[int, int]
"""A positive edge: (m, k) is m units of 10^(k-2), with 100 <= m <= 1000."""

ZERO: Final[Place] = (0, 0)
INFINITE: Final[Place] = (1, 10**6)


def bins_of(values: np.ndarray, least: int) -> tuple[list[float], list[int]]:
    """The edges between the bins, ascending, and the number of values in each bin: one more than edges.

    `values`: float (n,), without NaN; a bin has those from its lower edge on and below its upper one. Without
    values, there are no bins.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    if not len(ordered):
        return [], []
    enough = max(least, len(ordered) // MOST, 1)
    edges = sorted(_edges(ordered, enough))
    places = [0, *np.searchsorted(ordered, edges, side="left").tolist(), len(ordered)]
    return edges, [end - start for start, end in pairwise(places)]


def _edges(ordered: np.ndarray, enough: int) -> list[float]:
    edges: list[float] = []
    at = int(np.searchsorted(ordered, 0.0, side="left"))
    if at >= enough and len(ordered) - at >= enough:
        edges.append(0.0)
        above, below = ordered[at:], -ordered[:at][::-1]
    else:
        above, below = (ordered, ordered[:0]) if len(ordered) - at >= at else (ordered[:0], -ordered[::-1])
    _split(above, enough, False, edges)
    _split(below, enough, True, edges)
    return edges


def _split(ordered: np.ndarray, enough: int, negative: bool, edges: list[float]) -> None:
    """Add the edges above 0 for these values, or those below 0 for the values whose negatives these are."""
    waiting = [(ZERO, INFINITE, 0, len(ordered))]
    side = "right" if negative else "left"  # -x < -e is x > e: an edge belongs to the bin above it
    while waiting:
        low, high, start, end = waiting.pop()
        if end - start < 2 * enough or (middle := roundest(low, high)) is None:
            continue
        edge = value_of(middle)
        at = min(max(int(np.searchsorted(ordered, edge, side=side)), start), end)  # type: ignore[call-overload]
        if min(at - start, end - at) >= enough:
            edges.append(-edge if negative else edge)
            waiting += [(low, middle, start, at), (middle, high, at, end)]
        elif at - start >= end - at:
            waiting.append((low, middle, start, end))
        else:
            waiting.append((middle, high, start, end))


def roundest(low: Place, high: Place) -> Place | None:
    """The number at which the part between two places is split; None if it is not split any more."""
    if low == ZERO:
        power = 0 if high == INFINITE else high[1] - 1
        return (100, power) if power >= LOWEST else None
    if high == INFINITE:
        return (100, low[1] + 1) if low[1] < HIGHEST else None
    (first, power), last = low, high[0] if high[1] == low[1] else 1000
    for step in STEPS:
        inside = range((first // step + 1) * step, last, step)
        if inside:
            return min(inside, key=lambda number: abs(2 * number - first - last)), power
    return None


def value_of(place: Place) -> float:
    """The number, as float32 has it: 0.7 in a table is then not below the edge 0.7."""
    return float(np.float32(f"{place[0]}e{place[1] - 2}"))
