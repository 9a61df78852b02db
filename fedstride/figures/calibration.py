"""Calibration: how far predicted probabilities are from shares that are observed, in bins of equal width.

Of each row it takes a probability p in [0, 1] and whether it came true, o in {0, 1}:

- two classes: p of class 1, o: whether it is class 1;
- more classes: p of the predicted class, o: whether it is right (Guo et al., ICML 2017);
- labels: each label of each row on its own, as 1 / k of a row with k labels.

Bin b of B = 10 has the p in [b / B, (b + 1) / B), the last one also 1. With n_b of n in bin b,

    predicted_b = sum_b p / n_b     observed_b = sum_b o / n_b
    ECE = sum_b n_b / n |predicted_b - observed_b| = sum_b |sum_b p - sum_b o| / n.

The sums n_b, sum_b p and sum_b o are the state, so the figure over all clients is that of all rows. A site that
must not speak of few rows (`min_rows`) joins a bin with fewer to the nearest one with rows, from the lowest bin
on. The mean of |a| + |b| is at least |a + b|, so its part of the ECE can only become smaller by that.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from .figure import Figure
from .figure_states import State

BINS: Final = 10
"""Bins of equal width."""

COUNT, PREDICTED, OBSERVED = "count", "predicted", "observed"


def probabilities(outputs: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(p, o) from logits, float64 (n, k), and targets: int64 (n,) for classes, or (n, k) of 0 and 1 for labels.

    Both are (n,) for classes, and (n k,) for labels.
    """
    if targets.ndim == 2:
        return _logistic(outputs).reshape(-1), (targets.reshape(-1) > 0.5).astype(np.float64)
    if outputs.shape[1] == 2:
        return _logistic(outputs[:, 1] - outputs[:, 0]), (targets == 1).astype(np.float64)
    shifted = np.exp(outputs - outputs.max(1, keepdims=True))
    return (shifted / shifted.sum(1, keepdims=True)).max(1), (outputs.argmax(1) == targets).astype(np.float64)


def sums(p: np.ndarray, o: np.ndarray, bins: int = BINS) -> State:
    """n_b, the sum of p and the sum of o in each bin, each float64 (bins,)."""
    place = np.minimum((p * bins).astype(np.int64), bins - 1)
    return {
        COUNT: np.bincount(place, minlength=bins).astype(np.float64),
        PREDICTED: np.bincount(place, weights=p, minlength=bins),
        OBSERVED: np.bincount(place, weights=o, minlength=bins),
    }


def expected_error(state: Mapping[str, np.ndarray]) -> float:
    """The ECE. NaN without rows."""
    count = state[COUNT].sum()
    return float(np.abs(state[PREDICTED] - state[OBSERVED]).sum() / count) if count else float("nan")


def reliability(state: Mapping[str, np.ndarray]) -> np.ndarray:
    """predicted_b of each bin, then observed_b, then n_b: (3 bins,). The first two are 0 in a bin without rows."""
    count = state[COUNT]
    rates = [
        np.divide(state[name], count, out=np.zeros_like(count), where=count > 0) for name in (PREDICTED, OBSERVED)
    ]
    return np.concatenate([*rates, count])


def joined(state: State, least: int) -> State:
    """The same sums, in which no bin has fewer than `least` rows and more than none; all together if need be."""
    bins = {name: array.copy() for name, array in state.items()}
    count = bins[COUNT]
    while len(few := np.flatnonzero((count > 0) & (count < least))) and np.count_nonzero(count) > 1:
        place = int(few[0])
        others = np.flatnonzero(count)
        others = others[others != place]
        nearest = int(others[np.argmin(np.abs(others - place))])
        for array in bins.values():
            array[nearest] += array[place]
            array[place] = 0.0
    return bins


class _OfBins(Figure):
    """A figure of the sums in the bins."""

    predicts = ("class", "labels")

    def state(self, outputs: np.ndarray, targets: np.ndarray) -> Mapping[str, Any]:
        """The sums in each bin; of k labels, each is divided by k."""
        bins, labels = sums(*probabilities(outputs, targets)), targets.shape[1] if targets.ndim == 2 else 1
        return {name: array / labels for name, array in bins.items()}

    def fault(self, rows: float, state: State) -> str | None:
        """Sums in other bins, or that are not between 0 and the number of rows of their bin."""
        if set(state) != {COUNT, PREDICTED, OBSERVED} or any(array.shape != (BINS,) for array in state.values()):
            return f"a state that is not of {BINS} bins"
        slack = 1e-9 * rows
        if not all(((array >= 0) & (array <= state[COUNT] + slack)).all() for array in state.values()):
            return "sums in a bin that are below 0 or above its number of rows"
        return None if abs(state[COUNT].sum() - rows) <= slack else "bins with another number of rows than it has"

    def discreet(self, rows: int, state: State, least: int) -> State | None:
        """The sums with few rows joined to other bins."""
        bins = joined(state, least)
        return bins if bins[COUNT].max() >= least else None


class Calibration(_OfBins):
    """The expected calibration error, in ten bins of equal width."""

    better = "smaller"
    least, most = 0.0, 1.0

    def value(self, state: Mapping[str, np.ndarray]) -> float:
        """The ECE."""
        return expected_error(state)


class Reliability(_OfBins):
    """The reliability table: of each bin the mean predicted probability, the share observed, and the rows."""

    def value(self, state: Mapping[str, np.ndarray]) -> list[float]:
        """Three lists, one after the other."""
        return [float(value) for value in reliability(state)]


def _logistic(x: np.ndarray) -> np.ndarray:
    small = np.exp(-np.abs(x))
    logistic: np.ndarray = np.where(x >= 0, 1.0, small) / (1.0 + small)
    return logistic
