"""The difference of a figure of two models on the same rows: as a site sends it, and over several sites.

A site sends `[D, low, high, s]`: the difference D of its figures, the first model's less the second's, an
interval of 95 % and a standard deviation, by DeLong's method or a bootstrap of its rows
(`tasks/evaluation/comparison.py`). Of too few rows for an interval (`intervals.enough`) it sends `[D]` alone. If
D does not move with the rows, s is 0 and both ends are D. This is no interval, but the server counts the site.
Without the sites where both models agree, the mean over all sites would show a larger difference than there is.

**Rounded.** What is left out of an interval says nothing of the models, but could say something of a row. So all
four numbers are rounded to a power of ten of which half the interval has at least 10 and fewer than 100; without
an interval, D is rounded to two digits.

**Over sites** with n_k rows, of those that sent an interval (of all, and without an interval, if none did):

    D = sum_k n_k D_k / n     Var D = sum_k (n_k / n)^2 s_k^2     n = sum_k n_k     interval D +- 1.96 sqrt(Var D)

It is a mean of the sites' own differences, of rows that are drawn independently at each of these sites. It is not
the difference of the figures of all rows together, which for AUROC is another number, and says nothing of further
sites.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

from .intervals import LEVEL, NONE, Interval
from .pooled_scores import Pooled

LOW, HIGH = "low", "high"
"""Last parts of the names of the ends of an interval in the records, as in `difference/auroc/low`."""

ALONE, WHOLE = 1, 4
"""Numbers that a site sends: without an interval, and with one."""

DIGITS = 2

WIDEST, LARGEST = 10.0, 1e300
"""An interval reaches at most so many times as far as the largest difference, and never further."""


class Difference(NamedTuple):
    """A difference, its interval and its standard deviation; NaN where there are too few rows for them."""

    value: float
    interval: Interval = NONE
    deviation: float = math.nan

    def packed(self) -> list[float]:
        """As a site sends it, rounded."""
        if not (self.interval.known and self.deviation >= 0.0):
            return [_rounded(self.value, self.value)]
        half = (self.interval.high - self.interval.low) / 2
        return [_rounded(number, half or self.value) for number in (self.value, *self.interval, self.deviation)]


def unpacked(numbers: Sequence[float]) -> Difference:
    """What `packed` made of it, without what was rounded away."""
    if len(numbers) == ALONE:
        return Difference(float(numbers[0]))
    value, low, high, deviation = map(float, numbers)
    return Difference(value, Interval(low, high), deviation)


def fault_of(numbers: Sequence[float], most: float = math.inf) -> str | None:
    """Why these numbers of a client are no difference; None if they are. `most`: the largest possible one."""
    if len(numbers) not in (ALONE, WHOLE):
        return f"a list of {len(numbers)} numbers is no difference"
    for number in numbers:
        if not math.isfinite(number):
            return f"{number} is not finite"
        if abs(number) > (largest := min(WIDEST * most, LARGEST)):
            return f"{number:.12g} is not in [{-largest:g}, {largest:g}]"
    difference = unpacked(numbers)
    if abs(difference.value) > most:
        return f"{difference.value:.12g} is not in [{-most:g}, {most:g}]"
    if difference.interval.known and not (
        difference.interval.low <= difference.interval.high and difference.deviation >= 0.0
    ):
        return "an interval that ends before it begins, or a negative deviation"
    return None


def over_sites(sites: Sequence[Sequence[float]], rows: Sequence[float]) -> Difference:
    """The difference over sites, from what each sends and how many rows it has: see above."""
    differences = [(unpacked(numbers), count) for numbers, count in zip(sites, rows, strict=True)]
    known = [(difference, count) for difference, count in differences if difference.interval.known]
    used = known or differences
    whole = math.fsum(count for _, count in used)
    value = math.fsum(count / whole * difference.value for difference, count in used)
    if not known:
        return Difference(value)
    deviation = math.hypot(*(count / whole * difference.deviation for difference, count in used))
    half = NormalDist().inv_cdf((1.0 + LEVEL) / 2) * deviation
    if not math.isfinite(value + half) or not math.isfinite(value - half):  # of numbers that no site measures
        return Difference(value)
    return Difference(value, Interval(value - half, value + half), deviation)


def pooled(sites: Sequence[Sequence[float]], rows: Sequence[float]) -> Pooled:
    """The value of `over_sites`, as `metrics.Metric.pool` returns it; the only site's own value."""
    return Pooled(over_sites(sites, rows).value, None)


def _rounded(value: float, size: float) -> float:
    """The value, to a power of ten of which `size` has at least 10 and fewer than 100."""
    if not math.isfinite(value) or not size:
        return value
    return round(value, DIGITS - 1 - math.floor(math.log10(abs(size))))
