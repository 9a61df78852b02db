"""The sums of `updates.py` for the replies of a round: each byte is read as few times as possible.

The replies' bytes are read in place, in blocks, on several threads; what is kept has at most the size of one
model. The screening's pass over the replies yields the squares, and with them the sum that most rules need. What
was found is kept, so that nobody finds it again. `tensor_updates.py` finds the same with torch tensors. Knows
nothing of replies and rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
from typing_extensions import override

from fedstride.arrays.finite import first_not_finite
from fedstride.arrays.float64_sums import BLOCK, block, total
from fedstride.arrays.named import Arrays
from fedstride.arrays.on_device import device_in, is_tensor

from .blocks import ArrayBlock, blocks_of, on_threads, sums_by_name
from .kernels import Clients, Kernels, kernels_for
from .updates import Updates

Act = Callable[[Kernels, ArrayBlock, Clients, Any], None]
"""What a pass does with a block: kernels, which block, the clients' values there, and the sent ones in float64."""

Squares = list[dict[str, float]]
"""Of each client: a squared norm by parameter."""


class Pass(NamedTuple):
    """What one pass over all models finds."""

    squares: Squares  # ||w_k - w||^2
    summed: Arrays  # sum_k a_k (w_k - w)


class KnownUpdates(Updates):
    """The updates of a round's clients, from numpy arrays that do not change.

    `threads`: how many are used; None for the processor's cores. No result depends on it.
    """

    def __init__(self, sent: Arrays, models: Sequence[Arrays], *, threads: int | None = None) -> None:
        super().__init__(sent, models)
        self._threads = threads
        self._arrays = [list(model.values()) for model in models]  # what is read
        self._squares: Squares = []
        self._distances: Squares = []
        self._sum: Arrays = {}
        self._factors: list[float] = []  # of this sum

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

    def _of(self, sent: Arrays, models: Sequence[Arrays]) -> Self:
        """The updates of other models, of which nothing is known yet."""
        return type(self)(sent, models, threads=self._threads)

    def starting_from(self, sent: Arrays) -> Self:
        """The updates of the same models from this one: from the same arrays in memory, this object itself."""
        same = list(sent) == list(self.sent) and all(_same_memory(sent[n], self.sent[n]) for n in sent)
        known = same and all(
            len(model) == len(arrays) and all(map(_is, model.values(), arrays))
            for model, arrays in zip(self.models, self._arrays, strict=True)
        )
        return self if known else self._of(sent, self.models)

    # -------------------------------------------------------- how they are found

    def _find_both(self, factors: Sequence[float]) -> Pass:
        """One pass for the squares and the sum with these factors; its arrays are read-only."""
        squares, into = self._one_a_block(), self._zeros()

        def act(kernels: Kernels, place: ArrayBlock, clients: Clients, w: Any) -> None:
            out = block(into[place.name], place.part)
            squares[:, place.number] = kernels.squares_and_summed(clients, w, factors, out)

        self._pass(act)
        return Pass(self._by_name(squares), _read_only(into))

    def _find_squares(self) -> Squares:
        """The squares alone."""
        return self._numbers(lambda kernels, place, clients, w: kernels.squares(clients, w))

    def _find_summed(self, factors: Sequence[float]) -> Arrays:
        """The sum alone; read-only."""
        into = self._zeros()

        def act(kernels: Kernels, place: ArrayBlock, clients: Clients, w: Any) -> None:
            kernels.summed(clients, w, factors, block(into[place.name], place.part))

        self._pass(act)
        return _read_only(into)

    def _find_distances(self) -> Squares:
        """||(w_k - w) - g||^2 by parameter, for each client, with g the mean of the updates."""
        return self._numbers(lambda kernels, place, clients, w: kernels.distances(clients, w, len(self.models)))

    @override
    def products(self, vector: Arrays) -> list[float]:
        def of_block(kernels: Kernels, place: ArrayBlock, clients: Clients, w: Any) -> Any:
            return kernels.products(clients, w, block(vector[place.name], place.part))

        return [total(by_name.values()) for by_name in self._numbers(of_block)]

    def not_finite(self, k: int) -> str | None:
        """The first array of client number k that is not a parameter and contains NaN or infinity; else None."""
        return first_not_finite({name: array for name, array in self.models[k].items() if name not in self.names})

    # -------------------------------------------------------- passes

    @cached_property
    def _blocks(self) -> list[ArrayBlock]:
        return blocks_of(self.sent, self.names)

    def _numbers(self, of_block: Callable[[Kernels, ArrayBlock, Clients, Any], Any]) -> Squares:
        """A number for each client and parameter: the sum of those of its blocks."""
        numbers = self._one_a_block()

        def act(kernels: Kernels, place: ArrayBlock, clients: Clients, w: Any) -> None:
            numbers[:, place.number] = of_block(kernels, place, clients, w)

        self._pass(act)
        return self._by_name(numbers)

    def _pass(self, act: Act) -> None:
        """Call `act` for each block."""
        make = kernels_for(len(self.models) * sum(self.sent[name].size for name in self.names))

        def work(todo: Iterator[ArrayBlock]) -> None:
            kernels, wide = make(), np.empty(BLOCK)
            for place in todo:
                w = wide[: place.part.stop - place.part.start]
                np.copyto(w, block(self.sent[place.name], place.part), casting="same_kind")
                act(kernels, place, partial(self._values, place), w)

        with np.errstate(over="ignore", invalid="ignore"):  # what a client sent; the screening sees it in the sums
            on_threads(work, self._blocks, self._threads, arrays=len(self.models))

    def _values(self, place: ArrayBlock) -> Iterator[Any]:
        return (block(model[place.name], place.part) for model in self.models)

    def _one_a_block(self) -> Any:
        """A number for each client and block."""
        return np.empty((len(self.models), len(self._blocks)))

    def _by_name(self, one_a_block: Any) -> Squares:
        """The numbers summed over the blocks of each array, for each client."""
        return [sums_by_name(self._blocks, self.names, numbers) for numbers in one_a_block.tolist()]

    def _zeros(self) -> Arrays:
        return {name: np.zeros(self.sent[name].shape) for name in self.names}


def known_updates(sent: Arrays, models: Sequence[Arrays]) -> KnownUpdates:
    """The updates of these models from this one; all are numpy arrays, or all are tensors on one device."""
    from .tensor_updates import TensorUpdates  # here, because it is made of what is above

    return (KnownUpdates if device_in(sent.values()) is None else TensorUpdates)(sent, models)


class Models(tuple[Arrays, ...]):
    """The models of a cohort, and what is known of their updates; see `updates_of`."""

    updates: KnownUpdates | None = None

    @classmethod
    def of(cls, models: Sequence[Arrays], read: KnownUpdates | None) -> Models:
        """These models; `read` has the updates of all or of some of them."""
        result = cls(models)
        result.updates = None if read is None else read.among(models)
        return result

    def updates_from(self, sent: Arrays) -> Updates:
        """Their updates from this model."""
        return Updates(sent, self) if self.updates is None else self.updates.starting_from(sent)


def _is(a: object, b: object) -> bool:
    return a is b


def _same_memory(a: Any, b: Any) -> bool:
    """Whether two arrays are the same values in the same place."""
    if a is b:
        return True
    return not is_tensor(a) and not is_tensor(b) and bool(a.__array_interface__ == b.__array_interface__)


def _read_only(arrays: Arrays) -> Arrays:
    """These arrays, which may be given out several times."""
    for array in arrays.values():
        array.flags.writeable = False
    return arrays
