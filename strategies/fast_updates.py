"""The sums of `updates.py` for numpy arrays, the replies of a round: each byte is read as few times as possible.

The replies' bytes are read in place, in blocks, on several threads; what is kept has at most the size of one
model. The screening's pass over the replies yields the squares, and with them the sum that most rules need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from typing_extensions import override

from fedstride.arrays import BLOCK, Arrays, block, first_not_finite, total

from .blocks import Block, blocks_of, on_threads, sums_by_name
from .kernels import Clients, Kernels, kernels_for
from .known_updates import KnownUpdates, Pass, Squares

Act = Callable[[Kernels, Block, Clients, Any], None]
"""What a pass does with a block: kernels, which block, the clients' values there, and the sent ones in float64."""


class FastUpdates(KnownUpdates):
    """The updates of a round's clients, from numpy arrays that do not change.

    `threads`: how many are used; None for the processor's cores. No result depends on it.
    """

    def __init__(self, sent: Arrays, models: Sequence[Arrays], *, threads: int | None = None) -> None:
        super().__init__(sent, models)
        self._threads = threads
        self._blocks = blocks_of(sent, self.names)

    @override
    def _of(self, sent: Arrays, models: Sequence[Arrays]) -> FastUpdates:
        return FastUpdates(sent, models, threads=self._threads)

    @override
    def _find_both(self, factors: Sequence[float]) -> Pass:
        squares, into = self._one_a_block(), self._zeros()

        def act(kernels: Kernels, place: Block, clients: Clients, w: Any) -> None:
            out = block(into[place.name], place.part)
            squares[:, place.number] = kernels.squares_and_summed(clients, w, factors, out)

        self._pass(act)
        return Pass(self._by_name(squares), _read_only(into))

    @override
    def _find_squares(self) -> Squares:
        squares = self._one_a_block()

        def act(kernels: Kernels, place: Block, clients: Clients, w: Any) -> None:
            squares[:, place.number] = kernels.squares(clients, w)

        self._pass(act)
        return self._by_name(squares)

    @override
    def _find_summed(self, factors: Sequence[float]) -> Arrays:
        into = self._zeros()

        def act(kernels: Kernels, place: Block, clients: Clients, w: Any) -> None:
            kernels.summed(clients, w, factors, block(into[place.name], place.part))

        self._pass(act)
        return _read_only(into)

    @override
    def _find_distances(self) -> Squares:
        squares, m = self._one_a_block(), len(self.models)

        def act(kernels: Kernels, place: Block, clients: Clients, w: Any) -> None:
            squares[:, place.number] = kernels.distances(clients, w, m)

        self._pass(act)
        return self._by_name(squares)

    @override
    def products(self, vector: Arrays) -> list[float]:
        products = self._one_a_block()

        def act(kernels: Kernels, place: Block, clients: Clients, w: Any) -> None:
            products[:, place.number] = kernels.products(clients, w, block(vector[place.name], place.part))

        self._pass(act)
        return [total(by_name.values()) for by_name in self._by_name(products)]

    @override
    def not_finite(self, k: int) -> str | None:
        return first_not_finite({name: array for name, array in self.models[k].items() if name not in self.names})

    # -------------------------------------------------------- passes

    def _pass(self, act: Act) -> None:
        """Call `act` for each block."""
        make = kernels_for(len(self.models) * sum(self.sent[name].size for name in self.names))

        def work(todo: Iterator[Block]) -> None:
            kernels, wide = make(), np.empty(BLOCK)
            for place in todo:
                w = wide[: place.part.stop - place.part.start]
                np.copyto(w, block(self.sent[place.name], place.part), casting="same_kind")
                act(kernels, place, partial(self._values, place), w)

        with np.errstate(over="ignore", invalid="ignore"):  # what a client sent; the screening sees it in the sums
            on_threads(work, self._blocks, self._threads, arrays=len(self.models))

    def _values(self, place: Block) -> Iterator[Any]:
        return (block(model[place.name], place.part) for model in self.models)

    def _one_a_block(self) -> Any:
        """A number for each client and block."""
        return np.empty((len(self.models), len(self._blocks)))

    def _by_name(self, one_a_block: Any) -> Squares:
        """The numbers summed over the blocks of each array, for each client."""
        return [sums_by_name(self._blocks, self.names, numbers) for numbers in one_a_block.tolist()]

    def _zeros(self) -> Arrays:
        return {name: np.zeros(self.sent[name].shape) for name in self.names}


def _read_only(arrays: Arrays) -> Arrays:
    """These arrays, which may be given out several times."""
    for array in arrays.values():
        array.flags.writeable = False
    return arrays
