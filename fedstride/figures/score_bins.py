"""What a client says of the scores of its examples: bins of about equal mass, and how many examples are in each.

For each class or label, the scores s_1 <= ... <= s_n of a client are divided into m <= `most` bins by edges
e_0 < e_1 < ... < e_m. Of bin j it says how many negative and how many positive examples have
e_(j-1) < s < e_j.

- An edge inside, e_1 to e_(m-1), is the middle a / 2 + b / 2 of two neighbouring distinct scores a < b. It is not
  a score itself: where no float64 lies between a and b, both are in one bin, as equal scores are.
- Each bin has at least `least` examples; with fewer in all, there is one bin.
- With `least` > 1, a middle would say too much of two examples: a model can be made so that a score is a whole row
  of a table. So it is rounded to 8 significant bits (`rounded`); if no such number lies between a and b, both are
  in one bin. Which numbers can be edges then does not depend on the data.
- The outer edges are the lowest and the highest score, rounded outwards in the same way. With `least` > 1 they are
  -LARGEST and LARGEST, which say nothing: each of these scores is that of a single example.

The form in a message (`packed`) is, for each class or label in turn: m, the m + 1 edges, the m numbers of negative
examples, and the m numbers of positive ones. `pooled_scores.py` computes figures from the bins of many clients.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np

MAX_BINS: Final = 256

MAX_NUMBERS: Final = 4_000
"""Numbers of one figure that a client sends at most; with many classes each has fewer bins, and at least two."""

MAX_COUNT: Final = 1e12
"""Examples in a bin; a client that claims more is not believed."""

LARGEST: Final = sys.float_info.max

BITS: Final = 8
"""Significant bits of a rounded edge."""


class Bins(NamedTuple):
    """The bins of one class or label, float64: `edges` (m + 1,), and `negative` and `positive` examples (m,)."""

    edges: np.ndarray
    negative: np.ndarray
    positive: np.ndarray


def bins_for(columns: int) -> int:
    """The largest number of bins of each of so many classes or labels."""
    return max(2, min(MAX_BINS, (MAX_NUMBERS // columns - 2) // 3))


def bins_of(scores: np.ndarray, positive: np.ndarray, most: int, least: int = 1) -> Bins:
    """The bins of these scores, float64 (n,) with n >= 1; `positive`: bool (n,).

    Scores that are infinite are those of the largest number. Raises ValueError for NaN.
    """
    if np.isnan(scores).any():
        raise ValueError("a score is NaN")
    values, place = np.unique(np.clip(scores, -LARGEST, LARGEST), return_inverse=True)
    counts = np.stack([np.bincount(place[kind], minlength=len(values)) for kind in (~positive, positive)])
    middle = values[:-1] / 2 + values[1:] / 2
    if least > 1:
        lower = rounded(middle)
        middle = np.where(lower > values[:-1], lower, -rounded(-middle))
    can_end = np.flatnonzero((values[:-1] < middle) & (middle < values[1:]))
    ends = np.append(can_end, len(values) - 1)  # the last score of each group that must not be split
    ends = ends[_last_groups(np.cumsum(counts.sum(0))[ends], most, least)]
    low, high = (-LARGEST, LARGEST) if least > 1 else (_below(values[0]), -_below(-values[-1]))
    starts = np.concatenate([[0], ends[:-1] + 1])
    negative, positives = np.add.reduceat(counts, starts, axis=1).astype(np.float64)
    return Bins(np.concatenate([[low], middle[ends[:-1]], [high]]), negative, positives)


def _last_groups(upto: np.ndarray, most: int, least: int) -> list[int]:
    """The last group of each bin. `upto`: the examples up to the end of each group.

    A bin takes its share of what is left. A group that alone has so many gets its own bin, if what is before it is
    enough for one.
    """
    total, last = int(upto[-1]), len(upto) - 1
    ends: list[int] = []
    done = 0
    while done < total:
        size = max(least, -(-(total - done) // (most - len(ends))))
        end = int(np.searchsorted(upto, done + size))
        before = int(upto[end - 1]) if end > 0 else 0
        alone = end <= last and before - done >= least and int(upto[end]) - before >= size
        if alone and len(ends) < most - 1:
            end -= 1
        if end >= last or total - int(upto[end]) < least:  # what is left is not enough for a bin
            end = last
        ends.append(end)
        done = int(upto[end])
    return ends


def rounded(values: np.ndarray) -> np.ndarray:
    """The next number with at most 8 significant bits that is not above the value; at least -LARGEST."""
    mantissa, exponent = np.frexp(values)
    with np.errstate(over="ignore"):
        floored: np.ndarray = np.ldexp(np.floor(mantissa * 2**BITS), exponent - BITS).clip(-LARGEST, LARGEST)
    return floored


def _below(value: float) -> float:
    """The value, rounded down to another one."""
    before = min(math.nextafter(value, -math.inf), -sys.float_info.min if value == 0.0 else value)
    return float(rounded(np.array([before]))[0])


# ---------------------------------------------------------------- in a message


def packed(columns: Iterable[Bins]) -> list[float]:
    """The bins of all classes or labels as one list of numbers."""
    return [
        number
        for bins in columns
        for number in (float(len(bins.negative)), *(value for part in bins for value in part.tolist()))
    ]


def unpacked(numbers: Sequence[float]) -> list[Bins]:
    """The bins in a list of numbers of a client. Raises ValueError, with one line, if they cannot be such bins."""
    values = np.array(numbers, dtype=np.float64)
    if not np.isfinite(values).all():
        raise ValueError("a number is not finite")
    columns: list[Bins] = []
    start = 0
    while start < len(values):
        size = values[start]
        if not (1 <= size <= MAX_BINS and size == int(size)):
            raise ValueError(f"{size:.6g} bins, expected 1 to {MAX_BINS}")
        m = int(size)
        column = values[start + 1 : start + 2 + 3 * m]
        if len(column) < 1 + 3 * m:
            raise ValueError(f"{len(column)} numbers after a number of {m} bins, expected {1 + 3 * m}")
        columns.append(_checked(Bins(column[: m + 1], column[m + 1 : 2 * m + 1], column[2 * m + 1 :])))
        start += 2 + 3 * m
    if len({float(bins.negative.sum() + bins.positive.sum()) for bins in columns}) != 1:
        raise ValueError("no bins" if not columns else "bins of classes with different numbers of examples")
    return columns


def _checked(bins: Bins) -> Bins:
    if not (bins.edges[:-1] < bins.edges[1:]).all():
        raise ValueError("edges of bins that do not ascend")
    counts = np.concatenate(bins[1:])
    if not ((counts >= 0) & (counts <= MAX_COUNT) & (counts == np.floor(counts))).all():
        raise ValueError(f"a bin has a number of examples that is not a whole number from 0 to {MAX_COUNT:.0e}")
    if not counts.any():
        raise ValueError("bins without examples")
    return bins
