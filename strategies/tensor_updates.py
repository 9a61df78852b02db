"""The sums of `updates.py` for torch tensors, which stay on their device: only numbers are copied to the host.

All clients' values of an array are computed with at once, as one tensor with a row for each client, and the
numbers of all arrays are copied together: each copy would wait for the device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from typing_extensions import override

from fedstride.arrays import Arrays, float64, total

from .known_updates import KnownUpdates, Pass, Squares, by_client

VALUES = 2**25
"""Float64 values of updates that are on the device at once, at most, unless one client has more of an array."""

Sum = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Of an array and of some clients: their updates (clients, values), their numbers; a number for each."""


class TensorUpdates(KnownUpdates):
    """The updates of a round's clients, from tensors on one device that do not change."""

    @override
    def _find_both(self, factors: Sequence[float]) -> Pass:
        return Pass(self._find_squares(), self._find_summed(factors))

    @override
    def _find_squares(self) -> Squares:
        return self._numbers(lambda name, rows: rows.square().sum(1))

    @override
    def _find_summed(self, factors: Sequence[float]) -> Arrays:
        device = next(iter(self.sent.values())).device
        weights = torch.tensor(factors, dtype=torch.float64, device=device)
        return {name: self._sum_of(name, weights) for name in self.names}

    @override
    def _find_distances(self) -> Squares:
        m = len(self.models)
        means = self._find_summed([1.0] * m)
        return self._numbers(lambda name, rows: (rows - means[name].reshape(1, -1) / m).square().sum(1))

    @override
    def products(self, vector: Arrays) -> list[float]:
        found = self._numbers(lambda name, rows: (rows * vector[name].reshape(1, -1)).sum(1))
        return [total(by_name.values()) for by_name in found]

    @override
    def not_finite(self, k: int) -> str | None:
        return self._not_finite()[k]

    # -------------------------------------------------------- rows of updates

    def _rows(self, name: str) -> Iterator[tuple[slice, torch.Tensor]]:
        """Some clients after the other: which, and their updates of this array, float64 (clients, values)."""
        w = float64(self.sent[name]).reshape(1, -1)
        most = max(1, VALUES // max(1, w.numel()))
        for start in range(0, len(self.models), most):
            part = slice(start, min(start + most, len(self.models)))
            stacked = torch.stack([model[name].reshape(-1) for model in self.models[part]])
            yield part, stacked.double() - w

    def _sum_of(self, name: str, weights: torch.Tensor) -> torch.Tensor:
        summed = torch.zeros_like(self.sent[name], dtype=torch.float64)
        for part, rows in self._rows(name):
            summed += (rows * weights[part, None]).sum(0).reshape(summed.shape)
        return summed

    def _numbers(self, of: Callable[[str, torch.Tensor], torch.Tensor]) -> Squares:
        """A number for each client and parameter, from the rows of the parameter."""
        columns = {name: torch.cat([of(name, rows) for _, rows in self._rows(name)]) for name in self.names}
        return by_client(_to_host(columns), len(self.models))

    def _not_finite(self) -> list[str | None]:
        others = [name for name, array in self.sent.items() if name not in self.names and _has_nan(array)]
        finite = {
            name: torch.stack([model[name].isfinite().all() for model in self.models]).double() for name in others
        }
        found = by_client(_to_host(finite), len(self.models))
        return [next((name for name, good in each.items() if not good), None) for each in found]


def _has_nan(array: torch.Tensor) -> bool:
    """Whether the array's dtype has NaN and infinity."""
    return array.is_floating_point() or array.is_complex()


def _to_host(columns: dict[str, torch.Tensor]) -> dict[str, list[float]]:
    """The numbers by name, all copied at once."""
    if not columns:
        return {}
    return dict(zip(columns, torch.stack(list(columns.values())).tolist(), strict=True))
