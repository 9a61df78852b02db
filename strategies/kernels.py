"""The innermost sums: one block of one client's update. All that is fast or slow about a rule is here.

With x a block of the client's array, w the same block of the model that was sent, in float64, and d = x - w in
float64. Memory is allocated once for a thread, and each function is a few numpy calls on a block.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from logging import WARNING
from typing import Any

import numpy as np

from fedstride.arrays import BLOCK, block_sum
from fedstride.flower import log

Block1D = np.ndarray[Any, np.dtype[Any]]


WORTH_COMPILING = 2**26
"""Values in a pass from which the compiled functions are used: loading them takes most of a second, once."""


def kernels_for(values: int) -> type[Kernels]:
    """The functions for a pass over so many values: compiled if numba is installed; the bits are the same."""
    return (_compiled() if values >= WORTH_COMPILING else None) or Kernels


@cache
def _compiled() -> type[Kernels] | None:
    if find_spec("numba") is None:
        return None
    try:
        return import_module(".compiled", __package__).CompiledKernels  # type: ignore[no-any-return]
    except ImportError as error:
        log(WARNING, "numba cannot be used, so aggregation takes about twice as long: %s", error)
        return None


class Kernels:
    """The sums over a block; one object for each thread."""

    def __init__(self) -> None:
        self._bytes = np.empty(BLOCK * np.dtype(np.longdouble).itemsize, np.uint8)
        self._differences = np.empty(BLOCK)
        self._products = np.empty(BLOCK)

    def square(self, x: Block1D, w: Block1D) -> float:
        """||d||^2."""
        return self._summed_square(self._difference(x, w))

    def add(self, x: Block1D, w: Block1D, factor: float, into: Block1D, first: bool) -> None:
        """Add factor times d to `into`; the first client's overwrites it."""
        self._add(self._difference(x, w), factor, into, first)

    def square_and_add(self, x: Block1D, w: Block1D, factor: float, into: Block1D, first: bool) -> float:
        """Both of the above."""
        d = self._difference(x, w)
        square = self._summed_square(d)
        self._add(d, factor, into, first)
        return square

    def product(self, x: Block1D, w: Block1D, vector: Block1D) -> float:
        """<d, vector>."""
        d = self._difference(x, w)
        return block_sum(np.multiply(d, vector, out=d))

    def distance(self, x: Block1D, w: Block1D, mean: Block1D) -> float:
        """||d - mean||^2."""
        d = self._difference(x, w)
        return self._summed_square(np.subtract(d, mean, out=d))

    def _difference(self, x: Block1D, w: Block1D) -> Block1D:
        near = self._bytes[: x.nbytes].view(x.dtype)
        np.copyto(near, x)  # from memory: faster than a conversion that waits for it
        d = self._differences[: x.size]
        np.copyto(d, near, casting="same_kind")
        return np.subtract(d, w, out=d)

    def _summed_square(self, d: Block1D) -> float:
        return block_sum(np.multiply(d, d, out=self._products[: d.size]))

    def _add(self, d: Block1D, factor: float, into: Block1D, first: bool) -> None:
        if first:
            np.multiply(d, factor, out=into)
        else:
            scaled = d if factor == 1.0 else np.multiply(d, factor, out=d)
            np.add(into, scaled, out=into)
