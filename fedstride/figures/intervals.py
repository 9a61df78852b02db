"""Intervals for figures of a model: how far a figure could be by the chance of which rows were measured.

**DeLong** (E. DeLong, D. DeLong, D. Clarke-Pearson, Biometrics 44, 1988), for the AUROC of M models on the same
rows, m positive with scores x and n negative with scores y. With psi(x, y) = 1 if x > y, 1/2 if x = y, else 0,

    V10_i = sum_j psi(x_i, y_j) / n        V01_j = sum_i psi(x_i, y_j) / m        A = mean V10 = mean V01
    S10 = cov of V10 over the models, S01 = cov of V01 (both with n - 1)          cov(A) = S10 / m + S01 / n

A linear combination c A, such as a mean over seeds or a difference of two models, has the variance
s^2 = a + b, a = c' S10 c / m, b = c' S01 c / n. Both are estimated, so the quantile is Student's, with
Satterthwaite's degrees of freedom, as in the test of E. Brunner and U. Munzel (Biometrical Journal 42, 2000):

    f = (a + b)^2 / (a^2 / (m - 1) + b^2 / (n - 1)).

The interval of one AUROC is that of its logit, so it is inside (0, 1); of a difference D, D +- t_f s:

    logit(A) +- t_f s / (A (1 - A)).

**Bootstrap** (B. Efron, 1979), for all other figures: rows are drawn with replacement, within each stratum, which
is a site; a figure of what was drawn is computed for each of the draws. The interval goes from the share
(1 - level) / 2 of them to the share (1 + level) / 2. All models are measured on the same draws, so that a
difference is a paired one.

Both are of the rows alone: another training would give another model. Both need enough rows to be right, which
`enough` says. Both measure how far a figure moves when the rows change. Some figures do not move at all: that of a
single row, or an accuracy of 100 %. These have no interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from .. import seeds

LEVEL = 0.95
DRAWS = 1000
"""Of a bootstrap."""

FEWEST = 10
"""Rows, and of a figure by class rows of each kind, below which a figure and its interval say nothing."""

LEAST_SPREAD = 1e-12
"""A figure that moves by no more than this part of itself, or of 1, does not move: that is rounding."""

_AT_ONCE = 1 << 20
"""Counts of rows that are in memory at once."""


class Interval(NamedTuple):
    """From `low` to `high`; both NaN if there is none."""

    low: float
    high: float

    @property
    def known(self) -> bool:
        """Whether there is one."""
        return not math.isnan(self.low)


NONE = Interval(math.nan, math.nan)


class Estimate(NamedTuple):
    """An AUROC or a difference, its variance (NaN with one row of a kind), and the degrees of freedom of that."""

    value: float
    variance: float
    freedom: float


class Areas(NamedTuple):
    """The AUROC of each model, float64 (M,), and the two parts of their covariance, float64 (M, M).

    `of_hits` is S10 / m, and `of_others` S01 / n: NaN with one row of that kind. `sizes`: m and n.
    """

    values: np.ndarray
    of_hits: np.ndarray
    of_others: np.ndarray
    sizes: tuple[int, int]

    @property
    def covariance(self) -> np.ndarray:
        """The covariance of the areas, float64 (M, M)."""
        return np.asarray(self.of_hits + self.of_others)

    def of(self, weights: Sequence[float] | np.ndarray) -> Estimate:
        """This linear combination of the models."""
        coefficients = np.asarray(weights, np.float64)
        value = float(coefficients @ self.values)
        a, b = (
            float(np.maximum(0.0, coefficients @ part @ coefficients)) for part in (self.of_hits, self.of_others)
        )
        if not a + b > 0.0:  # NaN too
            return Estimate(value, a + b, math.inf)
        (m, n), share = self.sizes, a / (a + b)
        return Estimate(value, a + b, 1.0 / (share**2 / (m - 1) + (1.0 - share) ** 2 / (n - 1)))


def areas(scores: np.ndarray, positive: np.ndarray) -> Areas:
    """The AUROC of M models by DeLong's method.

    `scores`: (M, rows), any real numbers; `positive`: bool (rows,). Raises ValueError without positive or without
    negative rows.
    """
    hits, others = scores[:, positive], scores[:, ~positive]
    if not hits.shape[1] or not others.shape[1]:
        raise ValueError("an AUROC needs rows of both kinds")
    of_hits = np.stack([_shares_below(x, y) for x, y in zip(hits, others, strict=True)])
    of_others = 1.0 - np.stack([_shares_below(y, x) for x, y in zip(hits, others, strict=True)])
    m, n = hits.shape[1], others.shape[1]
    return Areas(of_hits.mean(1), _covariance(of_hits) / m, _covariance(of_others) / n, (m, n))


def of_area(estimate: Estimate, level: float = LEVEL) -> Interval:
    """The interval of an AUROC. None if the kinds are separated, so that the variance is 0."""
    value, variance, freedom = estimate
    if not 0.0 < value < 1.0 or not variance > LEAST_SPREAD**2:
        return NONE
    half = student(level, freedom) * math.sqrt(variance) / (value * (1.0 - value))
    logit = math.log(value / (1.0 - value))
    return Interval(_logistic(logit - half), _logistic(logit + half))


def of_difference(estimate: Estimate, level: float = LEVEL) -> Interval:
    """The interval of a difference of AUROCs. None if all rows have one order in both models (variance 0)."""
    if not estimate.variance > LEAST_SPREAD**2:
        return NONE
    half = student(level, estimate.freedom) * math.sqrt(estimate.variance)
    return Interval(estimate.value - half, estimate.value + half)


def resampled(sizes: Sequence[int], seed: int, draws: int = DRAWS) -> Iterator[np.ndarray]:
    """How often each row was drawn, int64 (some draws, rows), for `draws` draws together.

    `sizes`: the number of rows of each stratum; of each one, as many are drawn as it has. The draws depend on the
    arguments alone, and those of a stratum on its place and its size.
    """
    rows = max(1, sum(sizes))
    step = max(1, _AT_ONCE // rows)
    sources = [seeds.generator(seed, "bootstrap", 0, place) for place in range(len(sizes))]
    for start in range(0, draws, step):
        count = min(step, draws - start)
        parts = [
            source.multinomial(size, np.full(size, 1.0 / size), count) if size else np.zeros((count, 0), np.int64)
            for source, size in zip(sources, sizes, strict=True)
        ]
        yield np.concatenate(parts, axis=1)


def bootstrap(
    sizes: Sequence[int], figures: Callable[[np.ndarray], np.ndarray], seed: int, draws: int = DRAWS
) -> np.ndarray:
    """What `figures` gives for each draw of rows, float64 (draws, figures).

    `figures`: counts of rows, int64 (rows,) -> float64 (figures,); NaN where the drawn rows have no such figure.
    """
    by_draw = [figures(counts) for some in resampled(sizes, seed, draws) for counts in some]
    return np.array(by_draw, np.float64)


def of_draws(values: np.ndarray, level: float = LEVEL) -> Interval:
    """The interval of a figure from its bootstrap, float64 (draws,); draws without the figure do not count.

    None if more than a twentieth of the draws have none, since what remains is a choice, or if all are equal.
    """
    known = _known(values)
    if not len(known) or float(np.ptp(known)) <= LEAST_SPREAD * max(1.0, abs(float(known[0]))):
        return NONE
    low, high = np.quantile(known, [(1.0 - level) / 2, (1.0 + level) / 2])
    return Interval(float(low), float(high))


def variance_of_draws(values: np.ndarray) -> float:
    """The variance of a figure from its bootstrap, float64 (draws,); NaN if too many draws have no figure."""
    known = _known(values)
    return float(known.var(ddof=1)) if len(known) > 1 else math.nan


def _known(values: np.ndarray) -> np.ndarray:
    """The draws that have the figure; none of them if more than a twentieth of the draws have it not."""
    known: np.ndarray = values[~np.isnan(values)]
    return known if len(known) >= 0.95 * len(values) else known[:0]


def enough(rows: int, kinds: Sequence[int] = ()) -> bool:
    """Whether an interval of so many rows says something; `kinds`: how many of each, for figures by class."""
    return min([rows, *kinds]) >= FEWEST


def _shares_below(of: np.ndarray, among: np.ndarray) -> np.ndarray:
    """For each number the share of the others that are below it; equal ones count half."""
    ordered = np.sort(among)
    below, upto = np.searchsorted(ordered, of, "left"), np.searchsorted(ordered, of, "right")
    shares: np.ndarray = (below + upto) / (2.0 * len(among))
    return shares


def _covariance(shares: np.ndarray) -> np.ndarray:
    if shares.shape[1] < 2:
        return np.full((len(shares), len(shares)), math.nan)
    centred = shares - shares.mean(1, keepdims=True)
    covariance: np.ndarray = centred @ centred.T / (shares.shape[1] - 1)
    return covariance


def student(level: float, freedom: float) -> float:
    """Student's quantile of (1 + level) / 2, from the normal one: Abramowitz and Stegun, 26.7.5.

    Its error is below 1 % from 3 degrees of freedom on, and below 0.01 % from 9.
    """
    z = NormalDist().inv_cdf((1.0 + level) / 2)
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / freedom ** (power + 1) for power, term in enumerate(terms))


def _logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))
