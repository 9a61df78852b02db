"""Intervals for figures of a model: how far a figure could be by the chance of which rows were measured.

**DeLong** (E. DeLong, D. DeLong, D. Clarke-Pearson, Biometrics 44, 1988), for the AUROC of M models on the same
rows, m positive with scores x and n negative with scores y. With psi(x, y) = 1 if x > y, 1/2 if x = y, else 0,

    V10_i = sum_j psi(x_i, y_j) / n        V01_j = sum_i psi(x_i, y_j) / m        A = mean V10 = mean V01
    S10 = cov of V10 over the models, S01 = cov of V01 (both with n - 1)          cov(A) = S10 / m + S01 / n

A linear combination c A, such as a mean over seeds or a difference of two models, has the variance c' cov(A) c.
The interval of one AUROC is that of its logit, so it is inside (0, 1): with s^2 its variance,

    logit(A) +- z s / (A (1 - A));    of a difference: D +- z s.

**Bootstrap** (B. Efron, 1979), for all other figures: rows are drawn with replacement, within each stratum, which
is a site; a figure of what was drawn is computed for each of the draws. The interval goes from the share
(1 - level) / 2 of them to the share (1 + level) / 2. All models are measured on the same draws, so that a
difference is a paired one.

Both are of the rows alone: another training would give another model. Both need enough rows to be right, which
`enough` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from . import seeds

LEVEL = 0.95
DRAWS = 1000
"""Of a bootstrap."""

FEWEST = 10
"""Rows, and of a figure of ranks rows of each kind, below which an interval says nothing."""

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


class Areas(NamedTuple):
    """The AUROC of each model, float64 (M,), and their covariance, float64 (M, M): NaN with one row of a kind."""

    values: np.ndarray
    covariance: np.ndarray

    def of(self, weights: Sequence[float] | np.ndarray) -> tuple[float, float]:
        """The value of this linear combination of the models, and its variance."""
        each = np.asarray(weights, np.float64)
        return float(each @ self.values), float(each @ self.covariance @ each)


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
    covariance = _covariance(of_hits) / hits.shape[1] + _covariance(of_others) / others.shape[1]
    return Areas(of_hits.mean(1), covariance)


def of_area(value: float, variance: float, level: float = LEVEL) -> Interval:
    """The interval of an AUROC with this variance. None if the kinds are separated, so that the variance is 0."""
    if not 0.0 < value < 1.0 or not variance > 0.0:
        return NONE
    logit, half = math.log(value / (1.0 - value)), _z(level) * math.sqrt(variance) / (value * (1.0 - value))
    return Interval(_logistic(logit - half), _logistic(logit + half))


def of_difference(value: float, variance: float, level: float = LEVEL) -> Interval:
    """The interval of a difference of AUROCs with this variance, which is 0 if all rows have one order in both."""
    if not variance >= 0.0:
        return NONE
    half = _z(level) * math.sqrt(variance)
    return Interval(value - half, value + half)


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
    each = [figures(counts) for some in resampled(sizes, seed, draws) for counts in some]
    return np.array(each, np.float64)


def of_draws(values: np.ndarray, level: float = LEVEL) -> Interval:
    """The interval of a figure from its bootstrap, float64 (draws,); draws without the figure do not count.

    None if more than a twentieth of the draws have none: what remains is a choice.
    """
    found = values[~np.isnan(values)]
    if len(found) < 0.95 * len(values) or not len(found):
        return NONE
    low, high = np.quantile(found, [(1.0 - level) / 2, (1.0 + level) / 2])
    return Interval(float(low), float(high))


def enough(rows: int, kinds: Sequence[int] = ()) -> bool:
    """Whether an interval of so many rows says something; `kinds`: how many of each, for figures of ranks."""
    return min([rows, *kinds]) >= FEWEST


def _shares_below(of: np.ndarray, among: np.ndarray) -> np.ndarray:
    """For each number the share of the others that are below it; equal ones count half."""
    ordered = np.sort(among)
    below, upto = np.searchsorted(ordered, of, "left"), np.searchsorted(ordered, of, "right")
    found: np.ndarray = (below + upto) / (2.0 * len(among))
    return found


def _covariance(each: np.ndarray) -> np.ndarray:
    if each.shape[1] < 2:
        return np.full((len(each), len(each)), math.nan)
    centred = each - each.mean(1, keepdims=True)
    found: np.ndarray = centred @ centred.T / (each.shape[1] - 1)
    return found


def _z(level: float) -> float:
    return NormalDist().inv_cdf((1.0 + level) / 2)


def _logistic(x: float) -> float:
    return 1.0 / (1.0 + math.exp(-x)) if x >= 0 else math.exp(x) / (1.0 + math.exp(x))
