"""The sums of `updates.py` of which each is computed once, and the models of a round with what is known of them.

How they are computed, each value being read as few times as a rule allows, is in `fast_updates.py` (numpy arrays)
and `tensor_updates.py` (torch tensors). Knows nothing of replies and rules.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

from typing_extensions import override

from fedstride.arrays import Arrays
from fedstride.placing import device_in, is_tensor

from .updates import Updates

Squares = list[dict[str, float]]
"""Of each client: a squared norm by parameter."""


class Pass(NamedTuple):
    """What one pass over all models finds."""

    squares: Squares  # ||w_k - w||^2
    summed: Arrays  # sum_k a_k (w_k - w)


class KnownUpdates(Updates):
    """The updates of a round's clients, from arrays that do not change."""

    def __init__(self, sent: Arrays, models: Sequence[Arrays]) -> None:
        super().__init__(sent, models)
        self._arrays = [list(model.values()) for model in models]  # what is read
        self._squares: Squares = []
        self._distances: Squares = []
        self._sum: Arrays = {}
        self._factors: list[float] = []  # of this sum

    # -------------------------------------------------------- how sums are computed

    @abstractmethod
    def _find_both(self, factors: Sequence[float]) -> Pass:
        """One pass for the squares and the sum with these factors; its arrays are read-only."""

    @abstractmethod
    def _find_squares(self) -> Squares:
        """The squares alone."""

    @abstractmethod
    def _find_summed(self, factors: Sequence[float]) -> Arrays:
        """The sum alone; read-only."""

    @abstractmethod
    def _find_distances(self) -> Squares:
        """||(w_k - w) - g||^2 by parameter, for each client, with g the mean of the updates."""

    @abstractmethod
    def not_finite(self, k: int) -> str | None:
        """The first array of client number k that is not a parameter and contains NaN or infinity; else None."""

    def _of(self, sent: Arrays, models: Sequence[Arrays]) -> Self:
        """The updates of other models, of which nothing is known yet."""
        return type(self)(sent, models)

    # -------------------------------------------------------- the sums

    def read(self, factors: Sequence[float]) -> None:
        """One pass for the squares and `summed(factors)`."""
        self._check(factors)
        self._squares, self._sum = self._find_both(factors)
        self._factors = list(factors)

    def of_client(self, k: int) -> dict[str, float]:
        """||w_k - w||^2 of client number k, for each parameter."""
        if not self._squares:
            self._squares = self._find_squares()
        return self._squares[k]

    @override
    def squares(self, name: str) -> list[float]:
        return [self.of_client(k)[name] for k in range(len(self.models))]

    @override
    def summed(self, factors: Sequence[float]) -> Arrays:
        if self._factors != list(factors):
            self._check(factors)
            self._sum, self._factors = self._find_summed(factors), list(factors)
        return dict(self._sum)

    @override
    def distances(self, name: str) -> list[float]:
        if not self._distances:
            self._distances = self._find_distances()
        return [by_name[name] for by_name in self._distances]

    @override
    def is_changed(self, name: str) -> bool:
        squares = self.squares(name) if name in self.names else []
        if any(square > 0.0 for square in squares):
            return True
        # A difference of half or single precision is not so small that its square would be 0.
        surely_not = squares and self.sent[name].dtype.itemsize <= 4 and not any(squares)
        return not surely_not and super().is_changed(name)

    def _check(self, factors: Sequence[float]) -> None:
        if len(factors) != len(self.models):
            raise ValueError(f"{len(factors)} factors for {len(self.models)} models; give one for each")

    # -------------------------------------------------------- the same for other models

    @override
    def among(self, models: Sequence[Arrays]) -> Self:
        """The updates of these models; what is known of those that were read is taken over."""
        if len(models) == len(self.models) and all(map(_is, models, self.models)):
            return self
        other = self._of(self.sent, models)
        places = {id(model): k for k, model in enumerate(self.models)}
        if self._squares and all(id(model) in places for model in models):
            other._squares = [self._squares[places[id(model)]] for model in models]
        return other

    def starting_from(self, sent: Arrays) -> Self:
        """The updates of the same models from this one: from the same arrays in memory, this object itself."""
        same = list(sent) == list(self.sent) and all(_same_memory(sent[n], self.sent[n]) for n in sent)
        known = same and all(
            len(model) == len(arrays) and all(map(_is, model.values(), arrays))
            for model, arrays in zip(self.models, self._arrays, strict=True)
        )
        return self if known else self._of(sent, self.models)


def known_updates(sent: Arrays, models: Sequence[Arrays]) -> KnownUpdates:
    """The updates of these models from this one; all are numpy arrays, or all are tensors on one device."""
    from .fast_updates import FastUpdates  # here, because it is made of what is above
    from .tensor_updates import TensorUpdates

    return (FastUpdates if device_in(sent.values()) is None else TensorUpdates)(sent, models)


class Models(tuple[Arrays, ...]):
    """The models of a cohort, and what is known of their updates; see `updates_of`."""

    updates: KnownUpdates | None = None

    @classmethod
    def of(cls, models: Sequence[Arrays], read: KnownUpdates | None) -> Models:
        """These models; `read` has the updates of all or of some of them."""
        result = cls(models)
        result.updates = None if read is None else read.among(models)
        return result


def by_client(columns: Mapping[str, Sequence[float]], clients: int) -> Squares:
    """A number by parameter for each client, from the numbers of all clients by parameter."""
    return [{name: column[k] for name, column in columns.items()} for k in range(clients)]


def _is(a: object, b: object) -> bool:
    return a is b


def _same_memory(a: Any, b: Any) -> bool:
    """Whether two arrays are the same values in the same place."""
    if a is b:
        return True
    return not is_tensor(a) and not is_tensor(b) and bool(a.__array_interface__ == b.__array_interface__)
