"""The updates w_k - w of a round's clients, and the sums over them that rules need: written plainly.

`Updates` is the readable version, for numpy and torch, and the definition: every sum in float64, in the order of
the clients. `fast_updates.py` has the same sums for the replies of a round, to the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedstride.arrays.float64_sums import float64, inner, mean, squared_norm, total
from fedstride.arrays.named import Arrays, Layout, namespace


class Updates:
    """The updates of some clients' models `models` from the model `sent`; of the parameters alone.

    Nothing of their size is kept in memory: an update is computed where it is used.
    """

    def __init__(self, sent: Arrays, models: Sequence[Arrays]) -> None:
        self.sent = sent
        self.models = models
        self.names = Layout.of(sent).parameters

    def squares(self, name: str) -> list[float]:
        """||w_k - w||^2 of this array, for each client."""
        return [squared_norm(self._update(k, name)) for k in range(len(self.models))]

    def summed(self, factors: Sequence[float]) -> Arrays:
        """sum_k a_k (w_k - w) in float64, for each parameter; read-only."""
        return {name: self._summed(name, factors) for name in self.names}

    def products(self, vector: Arrays) -> list[float]:
        """<w_k - w, v> over all parameters, for each client; v in float64."""
        return [
            total(inner(self._update(k, name), vector[name]) for name in self.names)
            for k in range(len(self.models))
        ]

    def distances(self, name: str) -> list[float]:
        """||(w_k - w) - g||^2 of this array, with g the unweighted mean of the updates, for each client."""
        m = len(self.models)
        mean = self._summed(name, [1.0] * m) / m
        return [squared_norm(self._update(k, name) - mean) for k in range(m)]

    def averaged(self, name: str, shares: Sequence[float]) -> Any:
        """sum_k p_k w_k of this array, which may be a buffer, in float64."""
        return mean([model[name] for model in self.models], shares)

    def among(self, models: Sequence[Arrays]) -> Updates:
        """The updates of these models from the same one."""
        return Updates(self.sent, models)

    def is_changed(self, name: str) -> bool:
        """Whether any client returned other values of this array, which may be a buffer, than it was sent."""
        xp = namespace(self.sent[name])
        return any(bool(xp.any(model[name] != self.sent[name])) for model in self.models)

    def _update(self, k: int, name: str) -> Any:
        return float64(self.models[k][name]) - float64(self.sent[name])

    def _summed(self, name: str, factors: Sequence[float]) -> Any:
        result = None
        for k, (_, factor) in enumerate(zip(self.models, factors, strict=True)):
            term = factor * self._update(k, name)
            result = term if result is None else result + term
        return result


def updates_of(sent: Arrays, models: Sequence[Arrays]) -> Updates:
    """The updates of these models; of a cohort's `models` the fast ones, with what is already known of them."""
    updates_from = getattr(models, "updates_from", None)
    updates: Updates = Updates(sent, models) if updates_from is None else updates_from(sent)
    return updates
