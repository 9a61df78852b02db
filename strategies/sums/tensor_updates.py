"""The sums of `updates.py` for torch tensors, which stay on their device: only numbers are copied to the host.

All clients' values of an array are computed with at once, as one tensor with a row for each client, and the
numbers of all arrays are copied together: each copy would wait for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from typing_extensions import override

from fedstride.arrays.float64_sums import float64, total
from fedstride.arrays.named import Arrays, namespace

from .fast_updates import KnownUpdates, Pass, Squares

VALUES = 2**25
"""Float64 values of updates that are on the device at once, at most, unless one client has more of an array."""

Tensor = Any
"""A torch tensor. torch is not imported here: its functions are found by `namespace`."""


class TensorUpdates(KnownUpdates):
    """The updates of a round's clients, from tensors on one device that do not change."""

    @override
    def _find_both(self, factors: Sequence[float]) -> Pass:
        return Pass(self._find_squares(), self._find_summed(factors))

    @override
    def _find_squares(self) -> Squares:
        return self._columns(lambda name, rows: rows.square().sum(1))

    @override
    def _find_summed(self, factors: Sequence[float]) -> Arrays:
        return {name: self._sum_of(name, factors) for name in self.names}

    @override
    def _find_distances(self) -> Squares:
        m = len(self.models)
        means = self._find_summed([1.0] * m)
        return self._columns(lambda name, rows: (rows - means[name].reshape(1, -1) / m).square().sum(1))

    @override
    def products(self, vector: Arrays) -> list[float]:
        by_client = self._columns(lambda name, rows: (rows * vector[name].reshape(1, -1)).sum(1))
        return [total(by_name.values()) for by_name in by_client]

    @override
    def not_finite(self, k: int) -> str | None:
        return self._not_finite[k]

    # -------------------------------------------------------- rows of updates

    def _rows(self, name: str) -> Iterator[tuple[slice, Tensor]]:
        """Some clients after the other: which, and their updates of this array, float64 (clients, values)."""
        w = float64(self.sent[name]).reshape(1, -1)
        most = max(1, VALUES // max(1, w.numel()))
        for start in range(0, len(self.models), most):
            part = slice(start, min(start + most, len(self.models)))
            stacked = namespace(w).stack([model[name].reshape(-1) for model in self.models[part]])
            yield part, stacked.double() - w

    def _sum_of(self, name: str, factors: Sequence[float]) -> Tensor:
        summed = self.sent[name].new_zeros(self.sent[name].shape, dtype=namespace(self.sent[name]).float64)
        weights = summed.new_tensor(factors)
        for part, rows in self._rows(name):
            summed += (rows * weights[part, None]).sum(0).reshape(summed.shape)
        return summed

    def _columns(self, of: Callable[[str, Tensor], Tensor]) -> Squares:
        """A number for each client and parameter, from the rows of the parameter."""
        columns = {}
        for name in self.names:
            numbers = [of(name, rows) for _, rows in self._rows(name)]
            columns[name] = namespace(numbers[0]).concat(numbers)
        return _by_client(_to_host(columns), len(self.models))

    @cached_property
    def _not_finite(self) -> list[str | None]:
        """The answers for all clients, which are copied to the host together."""
        others = [name for name, array in self.sent.items() if name not in self.names and _has_nan(array)]
        finite = {
            name: namespace(self.sent[name])
            .stack([model[name].isfinite().all() for model in self.models])
            .double()
            for name in others
        }
        by_client = _by_client(_to_host(finite), len(self.models))
        return [next((name for name, good in by_name.items() if not good), None) for by_name in by_client]


def _has_nan(array: Tensor) -> bool:
    """Whether the array's dtype has NaN and infinity."""
    return bool(array.is_floating_point() or array.is_complex())


def _to_host(columns: dict[str, Tensor]) -> dict[str, list[float]]:
    """The numbers by name, all copied at once."""
    if not columns:
        return {}
    tensors = list(columns.values())
    return dict(zip(columns, namespace(tensors[0]).stack(tensors).tolist(), strict=True))


def _by_client(columns: Mapping[str, Sequence[float]], clients: int) -> Squares:
    """A number by parameter for each client, from the numbers of all clients by parameter."""
    return [{name: column[k] for name, column in columns.items()} for k in range(clients)]
