"""The innermost sums: one block of the updates of all clients. All that is fast or slow about a rule is here.

With x a block of a client's array, w the same block of the model that was sent, in float64, and d = x - w in
float64. Memory is allocated once for a thread; each step is one numpy call on a block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from logging import WARNING
from typing import Any

import numpy as np

from fedstride.arrays.float64_sums import BLOCK, block_sum
from fedstride.flower.logs import log

Values = np.ndarray[Any, np.dtype[Any]]
"""One block, flattened."""

Clients = Callable[[], Iterator[Values]]
"""Each call gives x of one client after the other, from the first."""

WORTH_COMPILING = 2**27
"""Values in a pass from which the functions are compiled; that takes some seconds, once in a process."""


def kernels_for(values: int) -> type[Kernels]:
    """The functions for a pass over so many values: compiled if numba is installed; the bits are the same."""
    return (_compiled() if values >= WORTH_COMPILING else None) or Kernels


@cache
def _compiled() -> type[Kernels] | None:
    if find_spec("numba") is None:
        return None
    try:
        return import_module(".compiled_kernels", __package__).CompiledKernels  # type: ignore[no-any-return]
    except ImportError as error:
        log(WARNING, "numba cannot be used, so aggregation takes about twice as long: %s", error)
        return None


class Kernels:
    """The sums over a block; one object for each thread."""

    def __init__(self) -> None:
        self._bytes = np.empty(BLOCK * np.dtype(np.longdouble).itemsize, np.uint8)
        self._differences = np.empty(BLOCK)
        self._products = np.empty(BLOCK)
        self._mean = np.empty(BLOCK)

    def squares(self, clients: Clients, w: Values) -> list[float]:
        """||d||^2 of each client."""
        return [self._square(self._difference(x, w)) for x in clients()]

    def summed(self, clients: Clients, w: Values, factors: Sequence[float], out: Values) -> None:
        """Write the sum of factor times d into `out`."""
        for k, x in enumerate(clients()):
            self._add(self._difference(x, w), factors[k], out, first=k == 0)

    def squares_and_summed(
        self, clients: Clients, w: Values, factors: Sequence[float], out: Values
    ) -> list[float]:
        """Both of the above."""
        squares = []
        for k, x in enumerate(clients()):
            d = self._difference(x, w)
            squares.append(self._square(d))
            self._add(d, factors[k], out, first=k == 0)
        return squares

    def products(self, clients: Clients, w: Values, vector: Values) -> list[float]:
        """<d, vector> of each client."""
        return [block_sum(np.multiply(d, vector, out=d)) for d in (self._difference(x, w) for x in clients())]

    def distances(self, clients: Clients, w: Values, count: int) -> list[float]:
        """||d - mean||^2 of each of `count` clients, with the mean of their d."""
        mean = self._mean[: w.size]
        self.summed(clients, w, [1.0] * count, mean)
        np.divide(mean, count, out=mean)
        return self._distances(clients, w, mean)

    def _distances(self, clients: Clients, w: Values, mean: Values) -> list[float]:
        differences = (self._difference(x, w) for x in clients())
        return [self._square(np.subtract(d, mean, out=d)) for d in differences]

    def _difference(self, x: Values, w: Values) -> Values:
        near = self._bytes[: x.nbytes].view(x.dtype)
        np.copyto(near, x)  # from memory: faster than a conversion that waits for it
        d = self._differences[: x.size]
        np.copyto(d, near, casting="same_kind")
        return np.subtract(d, w, out=d)

    def _square(self, d: Values) -> float:
        return block_sum(np.multiply(d, d, out=self._products[: d.size]))

    def _add(self, d: Values, factor: float, out: Values, first: bool) -> None:
        if first:
            np.multiply(d, factor, out=out)
        else:
            scaled = d if factor == 1.0 else np.multiply(d, factor, out=d)
            np.add(out, scaled, out=out)
