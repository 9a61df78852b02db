"""The chi-square test of homogeneity, for counts of two groups in the same bins.

With counts o_ij of group i in bin j, their sums n_i and m_j, and n of all:

    e_ij = n_i m_j / n        X^2 = sum (o_ij - e_ij)^2 / e_ij        degrees of freedom: bins - 1

Bins are joined to a neighbour until every e_ij is at least 5, below which the distribution of X^2 is another one.
P(X^2 >= x) is exact for whole degrees of freedom k (Abramowitz and Stegun 26.4.4 and 26.4.5): with z = x / 2,

    k even: exp(-z) sum_{i < k/2} z^i / i!
    k odd:  erfc(sqrt z) + exp(-z) sum_{i=1}^{(k-1)/2} z^(i-1/2) / G(i+1/2), with the gamma function G
"""

from __future__ import annotations

import math

import numpy as np

LEAST_EXPECTED = 5.0


def survival(x: float, degrees: int) -> float:
    """The probability that a chi-square variable with `degrees` >= 1 is at least x >= 0."""
    z = x / 2
    if z <= 0:
        return 1.0
    odd = degrees % 2
    powers = [i - odd / 2 for i in range(odd, (degrees + odd) // 2)]
    terms = (math.exp(power * math.log(z) - z - math.lgamma(power + 1)) for power in powers)
    return min(1.0, math.fsum([math.erfc(math.sqrt(z)) if odd else 0.0, *terms]))


def joined(counts: np.ndarray) -> np.ndarray:
    """Counts (2, bins) with bins joined to their smaller neighbour until all expected counts are at least 5."""
    table = np.asarray(counts, np.float64)
    while table.shape[1] > 1:
        sums = table.sum(0)
        smallest = int(np.argmin(sums))
        if sums[smallest] * table.sum(1).min() >= LEAST_EXPECTED * table.sum():
            break
        beside = [at for at in (smallest - 1, smallest + 1) if 0 <= at < len(sums)]
        other = min(beside, key=lambda at: sums[at])
        table[:, other] += table[:, smallest]
        table = np.delete(table, smallest, axis=1)
    return table


def homogeneity(counts: np.ndarray) -> float | None:
    """The p-value of two groups with these counts (2, bins); None if there is nothing to compare."""
    table = joined(counts)
    if table.shape[1] < 2 or not table.sum(1).all():
        return None
    expected = np.outer(table.sum(1), table.sum(0)) / table.sum()
    statistic = float((np.square(table - expected) / expected).sum())
    return survival(statistic, table.shape[1] - 1)
