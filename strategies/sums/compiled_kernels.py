"""The functions of `kernels.py`, compiled with numba: the same operations in the same order, so the same bits.

numpy makes a pass over a block for each operation and client; here a block is read once for four clients. Needs
the extra `fast`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numba import njit
from typing_extensions import override

from fedstride.arrays.float64_sums import LANES

from .kernels import Clients, Kernels, Values

GROUP = 4
"""Clients that are read together. No bit depends on it: each has its own sums, and they are added in order."""


class CompiledKernels(Kernels):
    """The sums over a block. Half precision and foreign byte orders are left to numpy, as are the last clients."""

    def __init__(self) -> None:
        super().__init__()
        self._lanes = np.empty((GROUP, LANES))

    @override
    def squares(self, clients: Clients, w: Values) -> list[float]:
        sums: list[float] = []
        for group in _groups(clients):
            if _are_native(group):
                _squares(*group, w, self._lanes)
                sums += self._lane_sums(w)
            else:
                sums += super().squares(group.__iter__, w)
        return sums

    @override
    def summed(self, clients: Clients, w: Values, factors: Sequence[float], out: Values) -> None:
        out.fill(-0.0)  # to which any number can be added without a change
        for group, p in zip(_groups(clients), _parts(factors), strict=True):
            if _are_native(group):
                _add(*group, w, *p, out)
            else:
                self._add_all(group, w, p, out)

    @override
    def squares_and_summed(
        self, clients: Clients, w: Values, factors: Sequence[float], out: Values
    ) -> list[float]:
        sums: list[float] = []
        out.fill(-0.0)
        for group, p in zip(_groups(clients), _parts(factors), strict=True):
            if _are_native(group):
                _squares_and_add(*group, w, *p, out, self._lanes)
                sums += self._lane_sums(w)
            else:
                sums += super().squares(group.__iter__, w)
                self._add_all(group, w, p, out)
        return sums

    @override
    def products(self, clients: Clients, w: Values, vector: Values) -> list[float]:
        products: list[float] = []
        for group in _groups(clients):
            if _are_native(group):
                _products(*group, w, vector, self._lanes)
                products += self._lane_sums(w)
            else:
                products += super().products(group.__iter__, w, vector)
        return products

    @override
    def _distances(self, clients: Clients, w: Values, mean: Values) -> list[float]:
        distances: list[float] = []
        for group in _groups(clients):
            if _are_native(group):
                _distances(*group, w, mean, self._lanes)
                distances += self._lane_sums(w)
            else:
                distances += super()._distances(group.__iter__, w, mean)
        return distances

    def _lane_sums(self, w: Values) -> list[float]:
        return np.add.reduce(self._lanes[:, : min(w.size, LANES)], axis=1).tolist()  # type: ignore[no-any-return]

    def _add_all(self, group: Sequence[Values], w: Values, factors: Sequence[float], out: Values) -> None:
        for x, factor in zip(group, factors, strict=True):
            self._add(self._difference(x, w), factor, out, first=False)


def _groups(clients: Clients) -> Iterator[list[Values]]:
    group: list[Values] = []
    for x in clients():
        group.append(x)
        if len(group) == GROUP:
            yield group
            group = []
    if group:
        yield group


def _parts(factors: Sequence[float]) -> Iterator[Sequence[float]]:
    return (factors[k : k + GROUP] for k in range(0, len(factors), GROUP))


def _are_native(group: Sequence[Values]) -> bool:
    """Whether compiled code can read these blocks. Makes them read-only, which is a type of its own for numba."""
    for x in group:
        if x.dtype not in (np.float32, np.float64) or not x.dtype.isnative or not x.flags.aligned:
            return False
        x.flags.writeable = False
    return len(group) == GROUP


def _compiled(function: Callable[..., None]) -> Callable[..., None]:
    """Compiled at its first call, without any freedom to reorder or to join operations.

    Not kept on disk: numba would read it back with pickle.
    """
    return njit(nogil=True, fastmath=False, error_model="numpy")(function)  # type: ignore[no-any-return]


@_compiled
def _squares(x0: Any, x1: Any, x2: Any, x3: Any, w: Any, lanes: Any) -> None:
    lanes[:] = 0.0
    s0, s1, s2, s3 = lanes[0], lanes[1], lanes[2], lanes[3]
    for start in range(0, w.size, LANES):
        part = slice(start, start + LANES)
        a0, a1, a2, a3, b = x0[part], x1[part], x2[part], x3[part], w[part]
        for j in range(b.size):
            d0, d1 = np.float64(a0[j]) - b[j], np.float64(a1[j]) - b[j]
            d2, d3 = np.float64(a2[j]) - b[j], np.float64(a3[j]) - b[j]
            s0[j] += d0 * d0
            s1[j] += d1 * d1
            s2[j] += d2 * d2
            s3[j] += d3 * d3


@_compiled
def _add(x0: Any, x1: Any, x2: Any, x3: Any, w: Any, p0: float, p1: float, p2: float, p3: float, out: Any) -> None:
    for j in range(w.size):
        d0, d1 = np.float64(x0[j]) - w[j], np.float64(x1[j]) - w[j]
        d2, d3 = np.float64(x2[j]) - w[j], np.float64(x3[j]) - w[j]
        out[j] = (((out[j] + p0 * d0) + p1 * d1) + p2 * d2) + p3 * d3


@_compiled
def _squares_and_add(
    x0: Any,
    x1: Any,
    x2: Any,
    x3: Any,
    w: Any,
    p0: float,
    p1: float,
    p2: float,
    p3: float,
    out: Any,
    lanes: Any,
) -> None:
    lanes[:] = 0.0
    s0, s1, s2, s3 = lanes[0], lanes[1], lanes[2], lanes[3]
    for start in range(0, w.size, LANES):
        part = slice(start, start + LANES)
        a0, a1, a2, a3, b, o = x0[part], x1[part], x2[part], x3[part], w[part], out[part]
        for j in range(b.size):
            d0, d1 = np.float64(a0[j]) - b[j], np.float64(a1[j]) - b[j]
            d2, d3 = np.float64(a2[j]) - b[j], np.float64(a3[j]) - b[j]
            s0[j] += d0 * d0
            s1[j] += d1 * d1
            s2[j] += d2 * d2
            s3[j] += d3 * d3
            o[j] = (((o[j] + p0 * d0) + p1 * d1) + p2 * d2) + p3 * d3


@_compiled
def _products(x0: Any, x1: Any, x2: Any, x3: Any, w: Any, vector: Any, lanes: Any) -> None:
    lanes[:] = 0.0
    s0, s1, s2, s3 = lanes[0], lanes[1], lanes[2], lanes[3]
    for start in range(0, w.size, LANES):
        part = slice(start, start + LANES)
        a0, a1, a2, a3, b, v = x0[part], x1[part], x2[part], x3[part], w[part], vector[part]
        for j in range(b.size):
            s0[j] += (np.float64(a0[j]) - b[j]) * v[j]
            s1[j] += (np.float64(a1[j]) - b[j]) * v[j]
            s2[j] += (np.float64(a2[j]) - b[j]) * v[j]
            s3[j] += (np.float64(a3[j]) - b[j]) * v[j]


@_compiled
def _distances(x0: Any, x1: Any, x2: Any, x3: Any, w: Any, mean: Any, lanes: Any) -> None:
    lanes[:] = 0.0
    s0, s1, s2, s3 = lanes[0], lanes[1], lanes[2], lanes[3]
    for start in range(0, w.size, LANES):
        part = slice(start, start + LANES)
        a0, a1, a2, a3, b, c = x0[part], x1[part], x2[part], x3[part], w[part], mean[part]
        for j in range(b.size):
            d0, d1 = (np.float64(a0[j]) - b[j]) - c[j], (np.float64(a1[j]) - b[j]) - c[j]
            d2, d3 = (np.float64(a2[j]) - b[j]) - c[j], (np.float64(a3[j]) - b[j]) - c[j]
            s0[j] += d0 * d0
            s1[j] += d1 * d1
            s2[j] += d2 * d2
            s3[j] += d3 * d3
