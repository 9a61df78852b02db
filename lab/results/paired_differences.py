"""Which method is better: differences paired by seed, their interval, and the method that is ahead of all others.

**Two methods.** a_s and b_s are their figures for the n seeds s that both have, d_s = a_s - b_s, with mean m and
sample standard deviation v (n - 1). Equal differences do not show that the deviation is 0: an accuracy is a
multiple of 1 / (number of examples). So the smallest step g that the differences show is added: the smallest
distance, other than 0, of two of the numbers 0, d_1, ..., d_n. The interval is Student's with this deviation:

    m ± t(1 - e / K, n - 1) · sqrt((v² + g²) / n),    e = 0.04

K is the number of methods that a page compares, the sum over its settings. A difference is decided if n >= 3 and
the interval is on one side of 0. If all d_s are equal, v = 0 and g = |m|: K = 2 needs n >= 7 then, where a sign
test needs 6.

**All methods of a setting.** A method has won if it is ahead of each other one, and each of these differences is
decided. At most a share e of such pages has a wrong verdict: of the k methods of a setting, let b be one with the
largest expectation. If another one wins, it is ahead of b: one of k - 1 events. If b wins although another one has
its expectation, b is ahead of that one: one event. Each of these k events is one tail of one comparison, of
probability e / K, and there are K of them on the page. The bound is 5 % and e is 4 %, because Student's tail is
exact for normal differences only: steps and lighter tails have up to 1.3 times as many errors.

The differences must be about symmetrical where the expectations are equal; those of two methods whose figures have
the same distribution are. `tests/lab/results/test_paired_differences.py` simulates normal and heavy-tailed
differences, steps with many ties, and several methods.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from scipy.special import stdtrit

LEAST: Final = 3
"""With fewer seeds nothing is decided."""

ERROR: Final = 0.04
"""e above: of all comparisons of a page together."""

MOST: Final = 100
"""If a verdict needs more seeds than this, their number is not estimated."""

EQUAL: Final = 1e-9
"""Differences whose distance is below this share of the largest one are equal: they differ by rounding only."""


@dataclass(frozen=True)
class Paired:
    """The mean of `n` differences and its interval, without one for n < 3.

    `needed`: about how many seeds decide a difference of this size, if the deviation stays; None if over MOST.
    """

    mean: float
    n: int
    low: float | None = None
    high: float | None = None
    needed: int | None = None
    equal: bool = False  # whether each difference is 0

    @property
    def decided(self) -> bool:
        """Whether the interval is on one side of zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def paired(differences: Sequence[float], methods: int = 2) -> Paired:
    """The mean of the differences (at least one) and its interval. `methods`: K above."""
    values = np.asarray(differences, dtype=np.float64)
    n, mean, equal = len(values), math.fsum(differences) / len(differences), not values.any()
    mean = 0.0 if abs(mean) <= EQUAL * np.abs(values).max() else mean  # what rounding leaves of 0
    spread = float(deviations(values[None])[0])
    if n < LEAST:
        return Paired(mean, n, needed=LEAST, equal=equal)
    half = factor(n, methods) * spread
    return Paired(mean, n, mean - half, mean + half, _needed(mean, spread, methods), equal)


def deviations(differences: np.ndarray) -> np.ndarray:
    """sqrt(v² + g²) of each row of differences (rows, n), float64 (rows,); v is 0 for n = 1."""
    rows, n = differences.shape
    size = np.abs(differences)
    ordered = np.sort(differences, axis=1)
    gaps = np.concatenate([size, np.diff(ordered, axis=1)], axis=1)
    step = np.where(gaps > EQUAL * size.max(axis=1, keepdims=True), gaps, np.inf).min(axis=1)
    variance = differences.var(axis=1, ddof=1) if n > 1 else np.zeros(rows)
    roots: np.ndarray = np.sqrt(variance + np.where(np.isfinite(step), step, 0.0) ** 2)
    return roots


def factor(n: int, methods: int) -> float:
    """Half the width of the interval, over the deviation: t(1 - e / K, n - 1) / √n, for n >= 2."""
    return float(stdtrit(n - 1, 1.0 - ERROR / methods)) / math.sqrt(n)


def _needed(mean: float, spread: float, methods: int) -> int | None:
    return next((n for n in range(LEAST, MOST + 1) if factor(n, methods) * spread < abs(mean)), None)


class MethodPair(NamedTuple):
    """Method `first` against method `second`: positive differences say that `first` is better.

    `seeds`: those that both have. `alone`: the seeds of each that only one of them has, which do not count.
    """

    first: str
    second: str
    result: Paired
    seeds: tuple[int, ...]
    alone: Mapping[str, tuple[int, ...]]


class Ranking(NamedTuple):
    """Who is ahead in a setting.

    `pairs`: the method that is ahead against each other one, the closest first; `apart`: methods that have too few
    seeds in common with the others and are not compared.
    """

    pairs: tuple[MethodPair, ...]
    apart: tuple[str, ...]

    @property
    def won(self) -> bool:
        """Whether the first method is ahead of each other one, and each difference is decided."""
        return all(pair.result.decided and pair.result.mean > 0 for pair in self.pairs)


Figures = Mapping[str, Mapping[int, float]]
"""By method and seed; larger is better."""


def comparable(figures: Figures) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The methods of which any two have LEAST seeds in common, and those that are left out for it, both in order.

    If no two methods have, it is the methods of which any two have one seed in common. The method that shares
    enough seeds with the fewest others is left out first. The choice depends on the seeds only, not on figures.
    """
    for least in (LEAST, 1):
        kept = list(figures)
        while kept:
            partners = [sum(_common(figures, a, b) >= least for b in kept if b != a) for a in kept]
            if min(partners) == len(kept) - 1:
                break
            last = min(range(len(kept)), key=lambda at: (partners[at], len(figures[kept[at]]), -at))
            del kept[last]
        if len(kept) > 1:
            return tuple(kept), tuple(name for name in figures if name not in kept)
    return (), tuple(figures)


def _common(figures: Figures, first: str, second: str) -> int:
    return len(figures[first].keys() & figures[second].keys())


def standing(figures: Figures, methods: int) -> Ranking | None:
    """Who is ahead; `methods`: how many the page compares. None if no two methods have a seed in common."""
    names, apart = comparable(figures)
    if len(names) < 2:
        return None
    pairs = {name: [_pair(figures, name, other, methods) for other in names if other != name] for name in names}
    ahead = max(names, key=lambda name: min(pair.result.mean for pair in pairs[name]))
    return Ranking(tuple(sorted(pairs[ahead], key=lambda pair: pair.result.mean)), apart)


def _pair(figures: Figures, first: str, second: str, methods: int) -> MethodPair:
    a, b = figures[first], figures[second]
    seeds = tuple(sorted(a.keys() & b.keys()))
    alone = {first: tuple(sorted(a.keys() - b.keys())), second: tuple(sorted(b.keys() - a.keys()))}
    return MethodPair(first, second, paired([a[seed] - b[seed] for seed in seeds], methods), seeds, alone)
