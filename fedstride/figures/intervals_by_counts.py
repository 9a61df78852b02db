"""Intervals of figures of which only the value and the numbers of rows are known: those of a site.

Where the scores themselves are, `intervals.py` has better ones. A share of n rows has Wilson's interval (Wilson,
1927). So has a mean over the rows of numbers in [0, 1]: they vary most if each is 0 or 1. Other figures do not
have it: recall has another denominator (the rows of a class), balanced accuracy is a mean over classes, and the
threshold of a sensitivity is estimated from the negative rows.

An AUROC has the standard deviation of Hanley and McNeil (1982), from its value A and the numbers n of
negative and m of positive rows, and the interval of its logit, as in `intervals.py`:

    var = [A (1 - A) + (m - 1) (Q1 - A^2) + (n - 1) (Q2 - A^2)] / (n m),   Q1 = A / (2 - A),   Q2 = 2 A^2 / (1 + A)

An A of 0 or 1 would have a deviation of 0, however few rows there are. There the deviation is that of 1 / (2 k)
or 1 - 1 / (2 k), with the smaller number of rows k of n and m, and the interval is A +- 1.96 deviations in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from .intervals import Estimate, Interval, student
from .intervals import of_area as of_estimate
from .score_bins import Bins, unpacked
from .scores import EXACT, SCORES

Z = student(0.95, math.inf)
"""Half the width of an interval of 95 % of the normal distribution, in standard deviations."""

RATES = frozenset(
    name
    for name, score in SCORES.items()
    if score.percent and score.finish is None and score.pool is None and score.figure is None
)
"""The figures that are a share of all rows, or a mean over them of numbers in [0, 1]."""

LISTS = {
    "balanced_accuracy": 2,
    **dict.fromkeys(("f1", "precision", "recall", "specificity", "jaccard", "cohen_kappa", "matthews"), 3),
}
"""Figures from rates by class or label, and how many lists of these; the first has the shares of rows."""


def kinds(name: str, sent: Sequence[float], rows: float) -> list[int]:
    """How many rows have each class or label, and how many have not; empty if the figure is not by class.

    `sent`: what a client with so many rows sends for the figure, rates or bins. Raises ValueError for other lists.
    """
    if name in EXACT:
        columns = unpacked(sent)
        counts = [float(column.positive.sum()) for column in columns], [float(c.negative.sum()) for c in columns]
        return [round(count) for each in counts for count in each]
    have = [round(rate * rows) for rate in sent[: len(sent) // LISTS[name]]] if name in LISTS else []
    return [*have, *(round(rows) - count for count in have)]


def of_rate(rate: float, rows: float) -> Interval:
    """Wilson's interval of a share in [0, 1] of this number of rows (at least 1)."""
    middle = (rate + Z * Z / (2 * rows)) / (1 + Z * Z / rows)
    half = Z * math.sqrt(rate * (1 - rate) / rows + Z * Z / (4 * rows * rows)) / (1 + Z * Z / rows)
    return Interval(max(0.0, middle - half), min(1.0, middle + half))


def of_area(area: float, deviation: float) -> Interval:
    """The interval of an AUROC with this standard deviation, within [0, 1]."""
    interval = of_estimate(Estimate(area, deviation**2, math.inf))
    return interval if interval.known else Interval(max(0.0, area - Z * deviation), min(1.0, area + Z * deviation))


def deviation_of_area(area: float, negative: float, positive: float) -> float:
    """The standard deviation of an AUROC of so many negative and positive rows (at least 1 of each)."""
    least = 1 / (2 * min(negative, positive))
    a = {0.0: least, 1.0: 1 - least}.get(area, area)
    first, second = a / (2 - a), 2 * a * a / (1 + a)
    variance = a * (1 - a) + (positive - 1) * (first - a * a) + (negative - 1) * (second - a * a)
    return math.sqrt(max(0.0, variance) / (negative * positive))


def deviation_from_bins(area: float, clients: Sequence[Sequence[float]]) -> float | None:
    """The same for the AUROC of all clients, from the bins of each (`score_bins.py`); None for several classes."""
    client_bins: list[Bins] = []
    for numbers in clients:
        columns = unpacked(numbers)
        if len(columns) != 1:
            return None
        client_bins += columns
    negative = math.fsum(float(bins.negative.sum()) for bins in client_bins)
    positive = math.fsum(float(bins.positive.sum()) for bins in client_bins)
    return deviation_of_area(area, negative, positive) if negative and positive else None
