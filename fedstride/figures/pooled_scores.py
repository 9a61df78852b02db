"""AUROC, average precision and sensitivity of the examples of many clients, from their bins (`score_bins.py`).

Client k counts with the weight w_k. Its bin i has an interval (l_i, h_i), c_i^- negative and c_i^+ positive
examples; t_k examples are in all its bins. With u_k = w_k / t_k the masses are n_i = u_k c_i^- and
p_i = u_k c_i^+, and N = sum_i n_i, P = sum_i p_i. With w_k = t_k each example counts once.

Bin j is below bin i, j < i, if h_j <= l_i: then each score of j is below each score of i. If neither is below the
other they overlap, and the order of their scores is not known. Two bins of one client do not overlap; each bin
overlaps itself.

What is certain is an interval for each figure. Within it the figure is computed as if the examples of a bin were
spread evenly over the pieces into which the edges of all clients divide it: m_i pieces for bin i, so piece e has

    N_e = sum_{i has e} n_i / m_i,    P_e = sum_{i has e} p_i / m_i.

The error beside a figure is its distance to the farther end of its interval, so it holds however the scores lie.

**AUROC** is the share of pairs (positive, negative) in order; equal scores count half:

    W = sum_{j < i} p_i n_j       V = sum_{i < j} p_i n_j       O = N P - W - V = sum_{i, j overlap} p_i n_j
    W / (N P) <= AUROC of the scores <= (W + O) / (N P)
    AUROC = sum_e P_e (sum_{f below e} N_f + N_e / 2) / (N P), within the interval.

It is exactly 1 if V = O = 0, never above 1 or below 0, and exact if no bin with positive examples overlaps one
with negative examples.

**Average precision** is the sum over positive examples x of T_x / (T_x + F_x) / P, where T_x and F_x are the
masses of positive and of negative examples with at least the score of x. The figure takes the examples of a piece
as equal:

    T_e = P_e + sum_{f above e} P_f,   F_e = N_e + sum_{f above e} N_f,   AP = sum_e P_e T_e / (T_e + F_e) / P.

So it is exact if bins do not overlap and each has one distinct score. Let x be in bin i. Of each kind (+, -), let
A_i be the mass in bins above i, and R_i the mass in bins that are not below i: A_i, and all that overlap i. As
T_x <= R_i^+ and F_x >= A_i^-,

    AP of the scores <= sum_i p_i R_i^+ / (R_i^+ + A_i^-) / P.

The r-th best of the c positive examples of bin i, each of mass u, has T_x >= g_r = A_i^+ + r u and F_x <= R_i^-.
As f(r) = g_r / (g_r + R_i^-) rises with r, f(1) + ... + f(c) >= f(1) + int_1^c f(r) dr, so

    AP of the scores >= sum_i [u f(1) + (p_i - u) - R_i^- log((g_c + R_i^-) / (g_1 + R_i^-))] / P.

**Sensitivity at a specificity** c is the largest share of positive examples with a score of at least t, over all
thresholds t for which at least the share c of the negative examples has a score below t. Let e_0 < e_1 < ... be
all edges. The negative examples below e_k are at least the mass of bins with h_i <= e_k, and the positive ones
from e_k on at least that with l_i >= e_k. If t is in (e_k, e_k+1], those are at most the masses of bins with
l_i <= e_k and with h_i >= e_k+1. So with the first k for which each is at least c N,

    sum_{l_i >= e_k} p_i / P <= sensitivity of the scores, sensitivity of the scores <= sum_{h_i >= e_k+1} p_i / P.

The figure takes the examples of a piece as spread evenly over it: t is where sum_{f below t} N_f = c N.

The figures are means over the classes or labels that have positive and negative examples, and so are the bounds.
All bits are independent of the order of the clients: masses are added in the order of edges, and sums over bins by
`math.fsum`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from .score_bins import unpacked

ROUNDING = 1e-12
"""A share of negative examples counts as reached if only rounding is missing."""


class Pooled(NamedTuple):
    """A figure, or several numbers, and how far it can be from that of the scores themselves.

    Both are NaN if no class has both kinds. `error`: None if nothing is lost by adding (`figure.py`).
    """

    value: float | list[float]
    error: float | None


class Segments(NamedTuple):
    """The bins of all clients for one class or label, each (bins,) float64; `unit`: the mass of one example."""

    low: np.ndarray
    high: np.ndarray
    negative: np.ndarray
    positive: np.ndarray
    unit: np.ndarray


class Around(NamedTuple):
    """The mass of one kind of examples around each of some bins: below, above, and not below."""

    below: np.ndarray
    above: np.ndarray
    reach: np.ndarray
    beside: np.ndarray


def auroc(clients: Sequence[Sequence[float]], weights: Sequence[float]) -> Pooled:
    """The AUROC of all clients' examples, from what each client sends (`score_bins.packed`), by weight above 0.

    Raises ValueError if they have bins of different numbers of classes or labels, or what cannot be bins.
    """
    return _mean(_area, clients, weights)


def average_precision(clients: Sequence[Sequence[float]], weights: Sequence[float]) -> Pooled:
    """The average precision of all clients' examples; else as `auroc`."""
    return _mean(_precision, clients, weights)


def sensitivity(percent: int) -> Callable[[Sequence[Sequence[float]], Sequence[float]], Pooled]:
    """The function for the sensitivity at a specificity of so many percent; else as `auroc`."""

    def at(clients: Sequence[Sequence[float]], weights: Sequence[float]) -> Pooled:
        return _mean(lambda segments: _detected(segments, percent), clients, weights)

    return at


class _Bounded(NamedTuple):
    """A figure of one class or label, and its distance to the farther end of its interval."""

    value: float
    error: float


def _mean(
    of: Callable[[Segments], _Bounded], clients: Sequence[Sequence[float]], weights: Sequence[float]
) -> Pooled:
    figures = [
        of(column) for column in _columns(clients, weights) if column.negative.any() and column.positive.any()
    ]
    if not figures:
        return Pooled(math.nan, math.nan)
    value, error = (math.fsum(part) / len(figures) for part in zip(*figures, strict=True))
    return Pooled(min(1.0, value), min(1.0, error))


def _columns(clients: Sequence[Sequence[float]], weights: Sequence[float]) -> Iterator[Segments]:
    """The bins of each class or label in turn."""
    by_client = [unpacked(numbers) for numbers in clients]
    for column in zip(*by_client, strict=True):
        parts = []
        for bins, weight in zip(column, weights, strict=True):
            unit = weight / float(bins.negative.sum() + bins.positive.sum())
            parts.append(
                Segments(
                    bins.edges[:-1],
                    bins.edges[1:],
                    bins.negative * unit,
                    bins.positive * unit,
                    np.full(len(bins.negative), unit),
                )
            )
        yield Segments(*map(np.concatenate, zip(*parts, strict=True)))


def _area(segments: Segments) -> _Bounded:
    kept = segments.positive > 0
    mass = segments.positive[kept]
    around = _around(segments, segments.negative, kept)
    right, wrong, unknown = (
        math.fsum((mass * part).tolist()) for part in (around.below, around.above, around.beside)
    )
    pairs = right + wrong + unknown
    negative, positive = _spread(segments, segments.negative), _spread(segments, segments.positive)
    below = np.cumsum(negative) - negative / 2
    value = math.fsum((positive * below).tolist()) / (math.fsum(positive.tolist()) * math.fsum(negative.tolist()))
    return _inside(value, right / pairs, (right + unknown) / pairs)


def _precision(segments: Segments) -> _Bounded:
    kept = segments.positive > 0
    mass, unit = segments.positive[kept], segments.unit[kept]
    positive, negative = _around(segments, segments.positive, kept), _around(segments, segments.negative, kept)
    reach, first = np.maximum(positive.reach, mass), positive.above + unit
    least = (
        unit * first / (first + negative.reach)
        + (mass - unit)
        - negative.reach * np.log1p((mass - unit) / (first + negative.reach))
    )
    total = math.fsum(mass.tolist())
    low, high = (math.fsum(part.tolist()) / total for part in (least, mass * (reach / (reach + negative.above))))
    pieces, others = _spread(segments, segments.positive)[::-1], _spread(segments, segments.negative)[::-1]
    hits, misses, some = np.cumsum(pieces), np.cumsum(others), pieces > 0
    parts = pieces[some] * (hits[some] / (hits[some] + misses[some]))
    return _inside(math.fsum(parts.tolist()) / math.fsum(pieces.tolist()), low, high)


def _detected(segments: Segments, percent: int) -> _Bounded:
    edges = np.unique(np.concatenate([segments.low, segments.high]))
    start, end = np.searchsorted(edges, segments.low), np.searchsorted(edges, segments.high)

    def upto(place: np.ndarray, masses: np.ndarray) -> np.ndarray:
        """The mass of the bins whose place is at most that of each edge."""
        return np.cumsum(np.bincount(place, weights=masses, minlength=len(edges)))

    negative, positive = float(segments.negative.sum()), float(segments.positive.sum())
    wanted = percent / 100 * negative * (1 - ROUNDING)
    surely, perhaps = upto(end, segments.negative), upto(start, segments.negative)  # negative ones below, by edge
    from_here = (
        positive
        - upto(start, segments.positive)
        + np.bincount(start, weights=segments.positive, minlength=len(edges))
    )
    low = from_here[int(np.argmax(surely >= wanted))] / positive
    beyond = positive - upto(end, segments.positive)  # of bins that end at a later edge
    high = beyond[int(np.argmax(perhaps >= wanted))] / positive
    pieces, others = _spread(segments, segments.positive), _spread(segments, segments.negative)
    below = np.concatenate([[0.0], np.cumsum(others)])
    above = np.concatenate([np.cumsum(pieces[::-1])[::-1], [0.0]])
    share = percent / 100 * below[-1]
    k = max(1, int(np.argmax(below >= share * (1 - ROUNDING))))
    part = min(1.0, (share - below[k - 1]) / (below[k] - below[k - 1]))
    value = float(above[k - 1] + part * (above[k] - above[k - 1])) / float(above[0])
    return _inside(value, *(min(1.0, max(0.0, float(bound))) for bound in (low, high)))


def _inside(value: float, low: float, high: float) -> _Bounded:
    """The value within the interval, and its distance to the farther end."""
    value = min(max(value, low), high)
    return _Bounded(value, max(0.0, high - value, value - low))


def _spread(segments: Segments, masses: np.ndarray) -> np.ndarray:
    """The mass in each piece between two neighbouring edges of all bins, in ascending order."""
    edges = np.unique(np.concatenate([segments.low, segments.high]))
    some = masses > 0
    start, end = np.searchsorted(edges, segments.low[some]), np.searchsorted(edges, segments.high[some])
    rate = masses[some] / (end - start)
    begins, ends = (
        np.bincount(place[order], weights=rate[order], minlength=len(edges))
        for place in (start, end)
        for order in (np.lexsort((rate, place)),)
    )
    bins = np.bincount(start, minlength=len(edges)) - np.bincount(end, minlength=len(edges))
    mass = np.maximum(0.0, np.cumsum(begins) - np.cumsum(ends))
    return np.where(np.cumsum(bins) > 0, mass, 0.0)[:-1]  # differences of sums are not exactly 0 in a gap


def _around(segments: Segments, masses: np.ndarray, kept: np.ndarray) -> Around:
    """The masses around the bins `kept`, of all bins that have any."""
    some = masses > 0
    low, high, mass = segments.low[some], segments.high[some], masses[some]
    by_low, by_high = np.lexsort((mass, low)), np.lexsort((mass, high))
    upto_low, upto_high = (np.concatenate([[0.0], np.cumsum(mass[order])]) for order in (by_low, by_high))
    begun = np.searchsorted(
        low[by_low], segments.high[kept], side="left"
    )  # bins that begin below the end of this one
    ended = np.searchsorted(high[by_high], segments.low[kept], side="right")  # bins that end below its begin
    below, above = upto_high[ended], upto_low[-1] - upto_low[begun]
    beside = np.where(begun == ended, 0.0, np.maximum(0.0, upto_low[begun] - below))
    return Around(below, above, upto_high[-1] - below, beside)
