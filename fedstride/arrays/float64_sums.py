"""Sums, products and norms of arrays in float64, in blocks whose order is a part of the mathematics."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .named import Arrays, is_kind, namespace

BLOCK = 32_768
"""Values that are summed together; 256 KiB in float64, so that a few blocks fit into a processor's cache."""

LANES = 1024
"""A block is summed in so many sums, which are then added: value i goes to sum i mod `LANES`.

Both are a part of the mathematics, since other numbers give other last bits.
"""


def float64(array: Any) -> Any:
    """The array in float64, a complex one in complex128; the same object if it already is."""
    xp = namespace(array)
    wide = xp.complex128 if is_kind(xp, array.dtype, "complex floating") else xp.float64
    return xp.astype(array, wide, copy=False)


def total(values: Iterable[float]) -> float:
    """The sum from left to right; 0.0 if there are none.

    Not the built-in sum, which compensates for rounding from Python 3.12 on: bits would depend on the version.
    """
    result = 0.0
    for value in values:
        result += value
    return float(result)


def inner(a: Any, b: Any) -> float:
    """The inner product of two arrays in float64.

    numpy arrays: products in C order, summed in blocks (`block_sum`), the sums of the blocks from left to right.
    No BLAS: the bits of a threaded dot product depend on the number of threads, and on the processor.
    """
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        return float(namespace(a).sum(float64(a) * float64(b)))
    return total(block_product(a, b, part) for part in blocks(a.size))


def block_product(a: np.ndarray, b: np.ndarray, part: slice) -> float:
    """The inner product of one block of two arrays."""
    x = float64(block(a, part))
    y = x if b is a else float64(block(b, part))
    return block_sum(x * y)


def block_sum(values: np.ndarray) -> float:
    """The sum of at most `BLOCK` values: in `LANES` sums from left to right, which are added pairwise."""
    if values.size <= LANES:
        return float(np.add.reduce(values))
    whole = values.size - values.size % LANES
    lanes = np.add.reduce(values[:whole].reshape(-1, LANES), axis=0)
    lanes[: values.size - whole] += values[whole:]
    return float(np.add.reduce(lanes))


def blocks(size: int) -> Iterator[slice]:
    """The blocks of an array of this size, flattened in C order."""
    return (slice(start, min(start + BLOCK, size)) for start in range(0, size, BLOCK))


def block(array: np.ndarray, part: slice) -> np.ndarray:
    """These values of the flattened array: a view, or a copy of them if the array is not stored in C order."""
    return array.reshape(-1)[part] if array.flags.c_contiguous else array.flat[part]


def squared_norm(array: Any) -> float:
    """The squared Euclidean norm of an array, summed in float64."""
    return inner(array, array)


def difference(new: Mapping[str, Any], old: Mapping[str, Any], names: Iterable[str]) -> Arrays:
    """new - old for these names, in float64."""
    return {name: float64(new[name]) - float64(old[name]) for name in names}


def norm(arrays: Mapping[str, Any]) -> float:
    """The Euclidean norm of all arrays concatenated."""
    return math.sqrt(total(squared_norm(array) for array in arrays.values()))


def mean(arrays: Sequence[Any], shares: Sequence[float]) -> Any:
    """Sum of share times array in float64, in the order given."""
    total = shares[0] * float64(arrays[0])
    for share, array in zip(shares[1:], arrays[1:], strict=True):
        total = total + share * float64(array)
    return total
