"""The state of a figure in a message: named arrays that add over clients, and the number of rows behind them.

The form in a message (`packed`) is a list of numbers: the rows, then for each array in the order of the names the
length of its name, the codes of its characters, its number of dimensions, its shape, and its values in C order. So
a server needs no more than the list to read it, and a list that is cut off or of another form is found.

States of several clients are added (`added`): each entry is the correctly rounded sum of the clients' entries
(`math.fsum`), so the order of clients does not matter, and counts are exact up to 2^53.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

State = dict[str, np.ndarray]
"""Named arrays, float64, of fixed shapes."""

MAX_NUMBERS: Final = 4_000
"""Numbers in the arrays of a state, at most."""

MAX_NAME: Final = 40
MAX_ARRAYS: Final = 100
MAX_DIMENSIONS: Final = 4
MAX_ROWS: Final = 1e12


class Reported(NamedTuple):
    """What a client says of a figure: its state, and of how many rows it is."""

    rows: float
    state: State


def checked(returned: object) -> State:
    """What a figure returned as its state, as float64. Raises ValueError, with one line, if it cannot be one."""
    if not isinstance(returned, Mapping) or not returned:
        raise ValueError(f"{type(returned).__name__} instead of a dict of arrays with at least one")
    state: State = {}
    for name, value in returned.items():
        if not isinstance(name, str) or not name.isidentifier() or not name.isascii() or len(name) > MAX_NAME:
            raise ValueError(f"the name {name!r:.60}; a name is a word of at most {MAX_NAME} letters")
        state[name] = _numbers(name, value)
    count = sum(array.size for array in state.values())
    if count > MAX_NUMBERS or len(state) > MAX_ARRAYS:
        raise ValueError(f"{len(state)} arrays of {count} numbers; at most {MAX_ARRAYS} of {MAX_NUMBERS} together")
    return dict(sorted(state.items()))


def _numbers(name: str, value: Any) -> np.ndarray:
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "biuf":
            raise TypeError
        array = array.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{name!r} is no array of numbers") from None
    if array.ndim > MAX_DIMENSIONS:
        raise ValueError(f"{name!r} has {array.ndim} dimensions, at most {MAX_DIMENSIONS}")
    if not np.isfinite(array).all():
        raise ValueError(f"{name!r} has a number that is not finite, which adds to nothing")
    return array


def form(state: State) -> int:
    """A number that is the same for states with the same names and shapes."""
    text = repr([(name, array.shape) for name, array in sorted(state.items())])
    return zlib.crc32(text.encode())


def packed(rows: int, state: State) -> list[float]:
    """The state of so many rows as one list of numbers."""
    numbers = [float(rows)]
    for name, array in sorted(state.items()):
        numbers += [
            float(len(name)),
            *map(float, name.encode("ascii")),
            float(array.ndim),
            *map(float, array.shape),
        ]
        numbers += array.reshape(-1).tolist()
    return numbers


def unpacked(numbers: Sequence[float]) -> Reported:
    """The state in a list of numbers of a client. Raises ValueError, with one line, if it cannot be one."""
    read = _Reader(numbers)
    rows = read.whole("rows", 1, MAX_ROWS)
    state: State = {}
    while not read.at_end:
        name = "".join(chr(read.whole("a letter", 0, 127)) for _ in range(read.whole("letters", 1, MAX_NAME)))
        shape = [
            read.whole("a length", 0, MAX_NUMBERS) for _ in range(read.whole("dimensions", 0, MAX_DIMENSIONS))
        ]
        array = np.array(read.take(math.prod(shape)), dtype=np.float64).reshape(shape)
        if not np.isfinite(array).all():
            raise ValueError("a number of the state is not finite")
        if not name.isidentifier() or name in state or len(state) == MAX_ARRAYS:
            raise ValueError("names of arrays that are no words, are there twice, or are too many")
        state[name] = array
    if not state:
        raise ValueError("a state without arrays")
    return Reported(float(rows), state)


class _Reader:
    """Takes numbers from a list, from the first to the last."""

    def __init__(self, numbers: Sequence[float]) -> None:
        self._numbers, self._at = numbers, 0

    @property
    def at_end(self) -> bool:
        return self._at >= len(self._numbers)

    def take(self, count: int) -> Sequence[float]:
        numbers = self._numbers[self._at : self._at + count]
        if len(numbers) < count:
            raise ValueError(f"a state that is cut off: {len(numbers)} numbers, expected {count}")
        self._at += count
        return numbers

    def whole(self, what: str, least: int, most: float) -> int:
        (value,) = self.take(1)
        if not (least <= value <= most and value == int(value)):
            raise ValueError(f"{value:.6g} as {what} of a state, expected a whole number from {least} to {most:g}")
        return int(value)


def added(clients: Sequence[Reported], weights: Sequence[float]) -> State:
    """The sum of the clients' states, each times its weight by row.

    A client whose weight is the number of its rows counts as it is. So if all do, this is the plain sum, and a
    client that claims more rows in its state than it has weight does not count for more.
    """
    weights_per_row = [weight / client.rows for client, weight in zip(clients, weights, strict=True)]
    most = max(weights_per_row)
    factors = [factor / most for factor in weights_per_row]
    state: State = {}
    for name, first in clients[0].state.items():
        parts = [factor * client.state[name] for factor, client in zip(factors, clients, strict=True)]
        flat = [math.fsum(entries) for entries in zip(*(part.reshape(-1).tolist() for part in parts), strict=True)]
        state[name] = np.array(flat, dtype=np.float64).reshape(first.shape)
    return state
