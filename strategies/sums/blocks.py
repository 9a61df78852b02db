"""Work on all values of a model, block by block on several threads; results do not depend on their number.

A block is small enough to stay in the processor's cache while several operations are done with it. Compiled
functions and numpy release the interpreter's lock in them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from fedstride.arrays.float64_sums import block, block_product, blocks, float64, inner, total
from fedstride.arrays.named import Arrays, namespace
from fedstride.arrays.on_device import is_tensor
from fedstride.processes.cores import cores

MOST_THREADS = 8
"""More would wait for the memory, and for the interpreter's lock between the operations."""

VALUES_A_THREAD = 2**25
"""With fewer values than this for each, threads cost more than they save: numpy's operations on a block are short,
and between them the threads wait for the interpreter's lock."""


class ArrayBlock(NamedTuple):
    """A part of one array of a model, flattened in C order."""

    number: int  # over the whole model
    name: str
    part: slice


def blocks_of(model: Mapping[str, Any], names: Sequence[str]) -> list[ArrayBlock]:
    """All blocks of these arrays, in order."""
    parts = [(name, part) for name in names for part in blocks(model[name].size)]
    return [ArrayBlock(number, name, part) for number, (name, part) in enumerate(parts)]


def on_threads(
    work: Callable[[Iterator[ArrayBlock]], None],
    todo: Sequence[ArrayBlock],
    threads: int | None = None,
    *,
    arrays: int = 1,
) -> None:
    """Call `work` on each thread with an iterator; together the iterators give each block once.

    `arrays`: how many arrays are read for a block. `threads`: None for the processor's cores, if there is enough
    work for them. What `work` raises is raised here.
    """
    if threads is None:
        values = arrays * sum(piece.part.stop - piece.part.start for piece in todo)
        threads = min(cores(), MOST_THREADS, values // VALUES_A_THREAD)
    threads = min(threads, len(todo))
    if threads <= 1:
        work(iter(todo))
        return
    shared, errors = _Shared(todo), np.geterr()

    def on_one() -> None:
        with np.errstate(**errors):  # threads do not inherit it
            work(shared)

    with ThreadPoolExecutor(threads, thread_name_prefix="blocks") as pool:
        for done in [pool.submit(on_one) for _ in range(threads)]:
            done.result()


class _Shared(Iterator[ArrayBlock]):
    """An iterator that several threads may use at once."""

    def __init__(self, todo: Sequence[ArrayBlock]) -> None:
        self._rest = iter(todo)
        self._lock = threading.Lock()

    def __next__(self) -> ArrayBlock:
        with self._lock:
            return next(self._rest)


def blockwise(function: Callable[..., Any], *models: Arrays) -> Arrays:
    """{name: function(model[name], ...)} for the names of the first model; `function` works value by value.

    numpy arrays are computed block by block, so that the temporary arrays of an expression are small. The arrays
    of one name have the same shape. torch tensors are computed as a whole.
    """
    return blockwise_by_name(lambda name, *arrays: function(*arrays), *models)


def blockwise_by_name(function: Callable[..., Any], *models: Arrays) -> Arrays:
    """The same for a function that gets the name before the arrays."""
    first = models[0]
    if not all(isinstance(model[name], np.ndarray) for name in first for model in models):
        return {name: function(name, *(model[name] for model in models)) for name in first}
    nothing = slice(0)
    results = {
        name: np.empty(array.shape, function(name, *(block(model[name], nothing) for model in models)).dtype)
        for name, array in first.items()
    }

    def work(todo: Iterator[ArrayBlock]) -> None:
        for _, name, part in todo:
            block(results[name], part)[...] = function(name, *(block(model[name], part) for model in models))

    on_threads(work, blocks_of(first, list(first)), arrays=len(models))
    return results


def difference(new: Arrays, old: Arrays, names: Iterable[str]) -> Arrays:
    """new - old of these arrays, in float64: `arrays.difference`, for large numpy arrays on several threads."""
    return blockwise(lambda old, new: float64(new) - float64(old), {name: old[name] for name in names}, new)


def inner_products(a: Arrays, b: Arrays, names: Iterable[str]) -> dict[str, float]:
    """<a, b> in float64 of each of these arrays: `arrays.inner`, for large numpy arrays on several threads.

    Of tensors, the numbers of all arrays are copied to the host together.
    """
    chosen = list(names)
    if chosen and all(is_tensor(model[name]) for name in chosen for model in (a, b)):
        xp = namespace(a[chosen[0]])
        products = xp.stack([xp.sum(float64(a[name]) * float64(b[name])) for name in chosen])
        return dict(zip(chosen, products.tolist(), strict=True))
    if not all(isinstance(model[name], np.ndarray) for name in chosen for model in (a, b)):
        return {name: inner(a[name], b[name]) for name in chosen}
    todo = blocks_of(a, chosen)
    numbers = [0.0] * len(todo)

    def work(mine: Iterator[ArrayBlock]) -> None:
        for number, name, part in mine:
            numbers[number] = block_product(a[name], b[name], part)

    on_threads(work, todo, arrays=2)
    return sums_by_name(todo, chosen, numbers)


def sums_by_name(todo: Iterable[ArrayBlock], names: Iterable[str], numbers: Iterable[float]) -> dict[str, float]:
    """The numbers of the blocks, summed over the blocks of each array from left to right."""
    sums = dict.fromkeys(names, 0.0)
    for place, number in zip(todo, numbers, strict=True):
        sums[place.name] += number
    return sums


def squared_norms(model: Arrays, names: Iterable[str] | None = None) -> dict[str, float]:
    """||a||^2 in float64 of each of these arrays; of all if `names` is None."""
    return inner_products(model, model, model if names is None else names)


def norm(model: Arrays) -> float:
    """The Euclidean norm of all arrays concatenated: `arrays.norm`, for large numpy arrays on several threads."""
    return math.sqrt(total(squared_norms(model).values()))
