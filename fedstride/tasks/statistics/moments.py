"""Mean and standard deviation of each column over all nodes' examples, from sums that each node computes alone.

A node sends number, mean and sum of squared deviations of its values. Those of two nodes are combined exactly
(Chan, Golub and LeVeque, "Algorithms for computing the sample variance", The American Statistician 37, 1983):

    n = n_a + n_b      mean = mean_a + d n_b / n      squares = squares_a + squares_b + d^2 n_a n_b / n

with d = mean_b - mean_a. So it does not matter how the examples are divided, and a large mean costs no precision,
as a sum of squares would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from ...errors import ReplyError, require
from ..inputs import Kind
from ..spec import Spec

CHUNK = 2**21  # values that are in memory as float64 at a time
LARGEST = float(np.finfo(np.float32).max)  # of a stored value, so also of a mean; then no product below overflows
FEW_STEPS = 16  # of float32 within a standard deviation
MOST = 2.0**53  # values of a column: whole numbers up to here are exact
AXES = {Kind.IMAGE: (0, 2, 3), Kind.SIGNAL: (0, 2), Kind.FRAMES: (0, 1), Kind.TABLE: (0,)}
"""The dimensions over which the values of a channel, feature or column are."""


@dataclass(frozen=True, eq=False)
class Moments:
    """Number, mean and sum of squared deviations of the values of each channel, feature or column: float64 (k,).

    Without values, mean and sum are 0.
    """

    count: np.ndarray
    mean: np.ndarray
    squares: np.ndarray

    def flatten(self) -> dict[str, list[float]]:
        """As plain values of a message."""
        return {f"moments.{name}": values.tolist() for name, values in vars(self).items()}

    @classmethod
    def unflatten(cls, record: Mapping[str, Any], length: int) -> Moments:
        """What `flatten` converted, of this many columns.

        Raises ReplyError for values that are missing, not finite, negative, or beyond what float32 can give.
        """
        count = _values(record, "count", length, 0.0, MOST)
        mean = _values(record, "mean", length, -LARGEST, LARGEST)
        squares = _values(record, "squares", length, 0.0, MOST * LARGEST**2)
        return cls(count, np.where(count > 0, mean, 0.0), np.where(count > 0, squares, 0.0))


def moments(x: np.ndarray, spec: Spec) -> Moments:
    """The moments of stored examples x (n, ...), divided by `spec.scale`. NaN does not count.

    Per channel of images and signals, feature of frames (over examples and frames), column of a table: then the
    bits are those of that column alone, whatever columns are beside it. Raises ConfigError for tokens, which are
    not numbers.
    """
    require(spec.inputs.kind in AXES, "kind", str(spec.inputs.kind), f"one of {', '.join(AXES)}")
    if spec.inputs.kind is Kind.TABLE:
        columns = [_moments(x[:, [at]], spec) for at in range(x.shape[1])]
        return Moments(
            *(np.concatenate(arrays) for arrays in zip(*(vars(one).values() for one in columns), strict=True))
        )
    return _moments(x, spec)


def _moments(x: np.ndarray, spec: Spec) -> Moments:
    size = max(1, CHUNK // int(np.prod(x.shape[1:])))
    chunks = (x[start : start + size] for start in range(0, max(len(x), 1), size))
    return pooled([_of(np.asarray(chunk, np.float64) / spec.scale, AXES[spec.inputs.kind]) for chunk in chunks])


def pooled(parts: Sequence[Moments]) -> Moments:
    """The moments of all values together. At least one part; all have the same columns."""
    return reduce(_combined, parts)


def normalisation(total: Moments) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(mean, standard deviation) of each column, for a `Spec`.

    The standard deviation is 1 if it is below what float32 can tell apart at this mean, or if there are no values:
    a constant column becomes zero and not infinite. One that varies stays in its own unit, in steps of float32
    (`is_coarse`).
    """
    std = np.sqrt(total.squares / np.maximum(total.count, 1.0))
    limits = np.finfo(np.float32)
    varies = std > np.maximum(limits.eps * np.abs(total.mean), limits.tiny)
    return tuple(total.mean.tolist()), tuple(np.where(varies, std, 1.0).tolist())


def is_coarse(total: Moments) -> np.ndarray:
    """Of which columns float32 loses the differences, bool (k,): they have few steps within a deviation.

    Also of those that are constant at a mean where the steps are larger than 1: whether they vary is lost already.
    """
    std = np.sqrt(total.squares / np.maximum(total.count, 1.0))
    step = np.finfo(np.float32).eps * np.abs(total.mean)
    return np.asarray((std < FEW_STEPS * step) & ((std > 0) | (step > 1.0)), bool)


def _of(values: np.ndarray, axes: tuple[int, ...]) -> Moments:
    """The moments of a chunk: deviations from the least value first, so equal values deviate by exactly zero."""
    last = np.moveaxis(values, axes, range(len(axes)))
    rows = last.reshape(-1, last.shape[-1])
    least = np.fmin.reduce(rows, axis=0, initial=np.nan)
    least = np.where(np.isnan(least), 0.0, least)
    rows = rows - least
    count = np.count_nonzero(~np.isnan(rows), axis=0).astype(np.float64)
    mean = np.nansum(rows, axis=0) / np.maximum(count, 1.0)
    return Moments(count, least + mean, np.nansum(np.square(rows - mean), axis=0))


def _combined(a: Moments, b: Moments) -> Moments:
    count = a.count + b.count
    share = b.count / np.maximum(count, 1.0)
    delta = b.mean - a.mean
    return Moments(count, a.mean + delta * share, a.squares + b.squares + np.square(delta) * a.count * share)


def _values(record: Mapping[str, Any], name: str, length: int, least: float, most: float) -> np.ndarray:
    key = f"moments.{name}"
    try:
        values = np.asarray(record[key], dtype=np.float64)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ReplyError(f"{key} is not a list of {length} numbers ({type(error).__name__})") from error
    if values.shape != (length,):
        raise ReplyError(f"{key} has shape {values.shape}, but must be a list of {length} numbers")
    wrong = values[~((values >= least) & (values <= most))]
    if len(wrong):
        raise ReplyError(f"{key} contains {wrong[0]}, which is not allowed: it must be from {least:g} to {most:g}")
    return values
