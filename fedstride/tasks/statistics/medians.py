"""The median of a column over all sites, from bins of its cells that each site makes alone.

A site divides the cells of a column that are not missing into at most 64 bins of about equal numbers. Each has at
least `LEAST` cells, also where a site says something of fewer rows, so that the result does not depend on what
runs where. The outer bins are open. An edge is (k + 1/2) s with a whole number k, whatever the cells beside it.
The step s is a power of two, between 1/512 and 1/256 of the range that is left without the `LEAST` lowest and
highest cells. Where several rows belong to one id, ids are counted in place of cells.

Of the n cells of all sites, the bins give bounds of how many are below a number t:

    lower(t) = cells of bins that end at t or before      upper(t) = those of bins that begin before t

So the median is at least the largest edge t with upper(t) < n / 2, and at most the smallest one with
lower(t) > n / 2. The value itself takes the cells of a bin as spread evenly over it, and those of an open bin as
at its inner edge. Its error is the distance to the farther one of the two bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from ...errors import ReplyError
from ...figures.score_bins import LARGEST, MAX_COUNT

LEAST: Final = 20
"""Cells of a bin, at least."""

MOST_BINS: Final = 64
"""Of a column, whatever other columns a run has: a site says the same to all."""


STEP_BITS: Final = 8
FLOAT_BITS: Final = 20
"""A step is not finer than cells of 24 bits are."""


class CellBins(NamedTuple):
    """Bins of the cells of a column: the inner edges (m - 1,), ascending, and the number of cells in each (m,)."""

    edges: np.ndarray
    counts: np.ndarray


NOTHING: Final = CellBins(np.zeros(0), np.zeros(0))
"""Of a column of which a site says nothing."""


class Median(NamedTuple):
    """A median, and how far it can be from that of the cells themselves: infinite if that is not known."""

    value: float
    error: float


def cells_of(values: np.ndarray, least: int, ids: np.ndarray | None = None) -> CellBins:
    """The bins of the cells of a column, float (n,), of which NaN are missing.

    `least`: the smallest number of rows of which the site says something. If fewer cells are missing, they are
    counted in the bin in the middle: how many they are is not said. `ids`: the number of the id of each row, from
    0; then ids are counted in place of rows and cells: each bin has cells of at least so many.
    """
    least, missing = max(least, LEAST), np.isnan(values)
    filled = values[~missing].astype(np.float64)
    order = np.argsort(filled, kind="stable")
    filled, of = filled[order], None if ids is None else ids[~missing][order]
    if _different(of, len(filled)) < least:
        return NOTHING
    edges = _edges(filled, of, least)
    counts = np.diff(np.searchsorted(filled, edges), prepend=0, append=len(filled)).astype(np.float64)
    gone = len(values) - len(filled)
    if _different(None if ids is None else ids[missing], gone) < least:
        counts[int(np.searchsorted(np.cumsum(counts), len(filled) / 2))] += gone
    return CellBins(edges, counts)


def _different(ids: np.ndarray | None, count: int) -> int:
    """How many ids there are; without ids, how many rows."""
    return count if ids is None else len(np.unique(ids))


def _edges(cells: np.ndarray, ids: np.ndarray | None, least: int) -> np.ndarray:
    """The inner edges of bins of these cells, which are sorted: each of at least so many, or of so many ids."""
    before = None if ids is None else _before(ids)
    total, first = len(cells), _enough(before, 0, least)
    last = total - (least if ids is None else _enough(_before(ids[::-1]), 0, least))
    inner = cells[first - 1 : last + 1]
    if not len(inner) or inner[0] == inner[-1]:
        return np.zeros(0)
    finest = math.frexp(float(np.abs(inner[[0, -1]]).max()))[1] - FLOAT_BITS
    step = 2.0 ** max(math.frexp(float(inner[-1] - inner[0]))[1] - 1 - STEP_BITS, finest)
    possible = (np.unique(np.floor(inner / step - 0.5)) + 1.5) * step  # the next one above each cell
    upto = np.searchsorted(cells, possible)
    places: list[int] = []
    done = 0
    while len(places) < MOST_BINS - 1:
        equal = done - (done - total) // (MOST_BINS - len(places))
        at = int(np.searchsorted(upto, max(_enough(before, done, least), equal)))
        if at == len(upto) or int(upto[at]) > last:
            break
        places.append(at)
        done = int(upto[at])
    return np.asarray(possible[places], np.float64)


def _before(ids: np.ndarray) -> np.ndarray:
    """The place of the cell before with the same id, for each cell; -1 if it is the first one."""
    order = np.argsort(ids, kind="stable")
    same = ids[order[1:]] == ids[order[:-1]]
    places = np.full(len(ids), -1)
    places[order[1:][same]] = order[:-1][same]
    return places


def _enough(before: np.ndarray | None, start: int, least: int) -> int:
    """Where cells from `start` end that have so many ids; beyond all cells if they have not."""
    if before is None:
        return start + least
    return start + int(np.searchsorted(np.cumsum(before[start:] < start), least)) + 1


def median(sites: Sequence[CellBins]) -> Median | None:
    """The median of the cells of all sites; None if no site has two bins."""
    told = [site for site in sites if len(site.edges)]
    if not told:
        return None
    knots = np.unique(np.concatenate([site.edges for site in told]))
    lower, upper = (sum(_below(site, knots, side) for site in sites) for side in ("right", "left"))
    half = sum(float(site.counts.sum()) for site in sites) / 2
    least = knots[upper < half].max(initial=-math.inf)
    most = knots[lower > half].min(initial=math.inf)
    value = float(np.clip(_even(told, knots), least, most))
    return Median(value, float(max(value - least, most - value)))


def _below(site: CellBins, knots: np.ndarray, side: str) -> Any:
    """How many cells are below each knot: for side "right" at least, for "left" at most."""
    if not len(site.counts):
        return np.zeros(len(knots))
    upto = np.cumsum(site.counts)
    if side == "left":
        return upto[np.searchsorted(site.edges, knots, "left")]
    ended = np.searchsorted(site.edges, knots, "right")
    return np.where(ended > 0, upto[ended - 1], 0.0)


def _even(sites: Sequence[CellBins], knots: np.ndarray) -> float:
    """The median if the cells of a bin are spread evenly over it, and those of an open one are at its edge."""
    before, upto = np.zeros(len(knots)), np.zeros(len(knots))  # without and with the cells at a knot
    for site in sites:
        at_edge = np.cumsum(site.counts)[:-1]
        inside = np.interp(knots, site.edges, at_edge, left=0.0, right=float(site.counts.sum()))
        before += np.where(knots == site.edges[0], 0.0, inside)
        upto += np.where(knots == site.edges[-1], site.counts.sum(), inside)
    half = sum(float(site.counts.sum()) for site in sites) / 2
    at = int(np.argmax(upto >= half))
    if at == 0 or before[at] < half:
        return float(knots[at])
    share = (half - upto[at - 1]) / (before[at] - upto[at - 1])
    return float(knots[at - 1] + share * (knots[at] - knots[at - 1]))


# ---------------------------------------------------------------- in a message


def packed(columns: Sequence[CellBins]) -> list[float]:
    """The bins of all columns as one list: of each their number, the inner edges, and the numbers of cells."""
    return [
        number
        for column in columns
        for number in (float(len(column.counts)), *column.edges.tolist(), *column.counts.tolist())
    ]


def unpacked(numbers: object, columns: int) -> list[CellBins]:
    """The bins of so many columns. Raises ReplyError for what cannot be bins that `packed` wrote."""
    if not isinstance(numbers, list) or not all(type(number) is float for number in numbers):
        raise ReplyError("the bins of columns are not a list of numbers")
    bins, start = [], 0
    for _ in range(columns):
        size = numbers[start] if start < len(numbers) else -1.0
        if not (0 <= size <= MOST_BINS and size == int(size)):
            raise ReplyError(f"a column with {size:g} bins, which must be 0 to {MOST_BINS}")
        inner = max(int(size) - 1, 0)
        edges = np.array(numbers[start + 1 : start + 1 + inner])
        counts = np.array(numbers[start + 1 + inner : start + 1 + inner + int(size)])
        bins.append(_checked(CellBins(edges, counts), int(size)))
        start += 1 + inner + int(size)
    if start != len(numbers):
        raise ReplyError(f"{len(numbers)} numbers for the bins of {columns} columns, which have {start}")
    return bins


def _checked(cells: CellBins, size: int) -> CellBins:
    if len(cells.counts) != size:
        raise ReplyError(f"a column with {len(cells.counts)} numbers of cells for {size} bins")
    if not (np.abs(cells.edges) < LARGEST).all() or not (cells.edges[:-1] < cells.edges[1:]).all():
        raise ReplyError("edges of bins that are not finite or do not ascend")
    if not ((cells.counts >= 1) & (cells.counts <= MAX_COUNT) & (cells.counts == np.floor(cells.counts))).all():
        raise ReplyError(f"a bin with a number of cells that is not a whole number from 1 to {MAX_COUNT:.0e}")
    return cells
