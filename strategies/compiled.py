"""The functions of `kernels.py`, compiled with numba: the same operations in the same order, so the same bits.

numpy makes a pass over a block for each operation; here the block is read once. Needs the extra `fast`. Compiled
code is kept on disk for the next process, where numba finds a folder for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from fedstride.arrays import LANES

from .kernels import Block1D, Kernels


class CompiledKernels(Kernels):
    """The sums over a block. Half precision and foreign byte orders are left to numpy."""

    def __init__(self) -> None:
        super().__init__()
        self._lanes = np.empty(LANES)

    def square(self, x: Block1D, w: Block1D) -> float:  # noqa: D102
        if not _is_native(x):
            return super().square(x, w)
        _square(x, w, self._lanes)
        return self._lane_sum(x)

    def add(self, x: Block1D, w: Block1D, factor: float, into: Block1D, first: bool) -> None:  # noqa: D102
        if not _is_native(x):
            super().add(x, w, factor, into, first)
        elif first:
            _set(x, w, factor, into)
        else:
            _add(x, w, factor, into)

    def square_and_add(self, x: Block1D, w: Block1D, factor: float, into: Block1D, first: bool) -> float:  # noqa: D102
        if first or not _is_native(x):
            return super().square_and_add(x, w, factor, into, first)
        _square_and_add(x, w, factor, into, self._lanes)
        return self._lane_sum(x)

    def product(self, x: Block1D, w: Block1D, vector: Block1D) -> float:  # noqa: D102
        if not _is_native(x):
            return super().product(x, w, vector)
        _product(x, w, vector, self._lanes)
        return self._lane_sum(x)

    def distance(self, x: Block1D, w: Block1D, mean: Block1D) -> float:  # noqa: D102
        if not _is_native(x):
            return super().distance(x, w, mean)
        _distance(x, w, mean, self._lanes)
        return self._lane_sum(x)

    def _lane_sum(self, x: Block1D) -> float:
        return float(np.add.reduce(self._lanes[: min(x.size, LANES)]))


def _is_native(x: Block1D) -> bool:
    return x.dtype in (np.float32, np.float64) and x.dtype.isnative and x.flags.aligned


def _compiled(function: Callable[..., None]) -> Callable[..., None]:
    """Compiled without any freedom to reorder or to join operations."""
    options: dict[str, Any] = {"nogil": True, "fastmath": False, "error_model": "numpy"}
    try:
        return njit(cache=True, **options)(function)  # type: ignore[no-any-return]
    except RuntimeError:  # no folder to keep compiled code in
        return njit(**options)(function)  # type: ignore[no-any-return]


@_compiled
def _square(x: Any, w: Any, lanes: Any) -> None:
    lanes[:] = 0.0
    for start in range(0, x.size, LANES):
        xs, ws = x[start : start + LANES], w[start : start + LANES]
        for j in range(xs.size):
            d = np.float64(xs[j]) - ws[j]
            lanes[j] += d * d


@_compiled
def _set(x: Any, w: Any, factor: float, into: Any) -> None:
    for j in range(x.size):
        into[j] = factor * (np.float64(x[j]) - w[j])


@_compiled
def _add(x: Any, w: Any, factor: float, into: Any) -> None:
    for j in range(x.size):
        into[j] += factor * (np.float64(x[j]) - w[j])


@_compiled
def _square_and_add(x: Any, w: Any, factor: float, into: Any, lanes: Any) -> None:
    lanes[:] = 0.0
    for start in range(0, x.size, LANES):
        xs, ws, sums = x[start : start + LANES], w[start : start + LANES], into[start : start + LANES]
        for j in range(xs.size):
            d = np.float64(xs[j]) - ws[j]
            lanes[j] += d * d
            sums[j] += factor * d


@_compiled
def _product(x: Any, w: Any, vector: Any, lanes: Any) -> None:
    lanes[:] = 0.0
    for start in range(0, x.size, LANES):
        xs, ws, vs = x[start : start + LANES], w[start : start + LANES], vector[start : start + LANES]
        for j in range(xs.size):
            lanes[j] += (np.float64(xs[j]) - ws[j]) * vs[j]


@_compiled
def _distance(x: Any, w: Any, mean: Any, lanes: Any) -> None:
    lanes[:] = 0.0
    for start in range(0, x.size, LANES):
        xs, ws, means = x[start : start + LANES], w[start : start + LANES], mean[start : start + LANES]
        for j in range(xs.size):
            d = (np.float64(xs[j]) - ws[j]) - means[j]
            lanes[j] += d * d
