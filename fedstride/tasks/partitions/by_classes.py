"""Partitions with exact numbers of classes: which examples each client has if its classes or shards are given.

Each function has the interface of a partition and uses every example.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from ...errors import DataError
from ...settings import MOST_EXAMPLES, Setting
from .client_sizes import classes_of_clients, equal_sizes, table_with_sums
from .divisible_examples import Divisible
from .schemes import CLASSES, EXPONENT, Parts, check_classes, generator, power_law

TRIES = 20


def shards(
    source: Divisible,
    clients: int,
    seed: int,
    *,
    classes_per_client: Annotated[int, CLASSES] = 2,
    balanced: Annotated[bool, Setting("give all clients the same number of examples")] = False,
) -> Parts:
    """Label skew: each client has exactly S random classes; sizes are unequal, or `balanced` (FedNLR, "shards").

    Each class has clients in proportion to its number of examples. The paper says that the sizes are unequal, but
    not how: here, the examples of a class are cut at random places, each client getting at least one. With
    `balanced`, all sizes are equal or differ by one. Raises DataError if some class would have no client, or if
    the examples do not permit such parts.
    """
    labels = source.needs_labels("shards")
    sizes = equal_sizes(len(labels), clients)
    rng = generator(seed)
    if balanced:
        return _exact(labels, sizes, classes_per_client, rng, "use fewer clients or partition.balanced=false")
    held, counts = _held(labels, sizes, classes_per_client, rng)
    holders = held.sum(axis=0)
    if (holders > counts).any():
        rarest = int(np.argmax(holders > counts))
        raise DataError(
            f"clients = {clients} with partition.classes_per_client = {classes_per_client} need {holders[rarest]} "
            f"examples of a class that has {counts[rarest]}; use fewer clients or fewer classes for each"
        )
    table = np.zeros(held.shape, dtype=np.int64)
    for number, count in enumerate(counts):
        cuts = np.sort(rng.choice(count - 1, size=holders[number] - 1, replace=False)) + 1
        table[held[:, number], number] = np.diff(cuts, prepend=0, append=count)
    return _dealt(table, labels, rng)


def two_classes(
    source: Divisible,
    clients: int,
    seed: int,
    *,
    sizes: Annotated[str, Setting("sizes of the clients' data", options=("equal", "power_law"))] = "equal",
    exponent: Annotated[float, EXPONENT] = 1.0,
    min_size: Annotated[
        int,
        Setting("minimum number of examples of each client, with sizes=power_law", least=2, most=MOST_EXAMPLES),
    ] = 10,
) -> Parts:
    """Label skew: each client has two classes, with equal sizes or a power law (FedNNNN, Non-IID B and UB).

    The sizes are exact, as in `quantity_skew`; each client's two classes are about equally frequent, as far as the
    numbers of examples permit. The paper states neither the exponent nor how classes and sizes are combined.
    Raises DataError if the examples do not permit such parts.
    """
    labels = source.needs_labels("two_classes")
    if sizes == "equal":
        wanted, advice = equal_sizes(len(labels), clients), "use fewer clients"
    else:
        wanted = power_law(source, clients, exponent, min_size)
        advice = "lower partition.exponent or use fewer clients"
    return _exact(labels, wanted, 2, generator(seed), advice, key="partition = 'two_classes'")


def one_class(source: Divisible, clients: int, seed: int) -> Parts:
    """Label skew: each client has one class (FedNLR, example 1 and table 4). Client k has class k modulo classes.

    A class is divided evenly among its clients. Raises DataError if there are fewer clients than classes.
    """
    labels = source.needs_labels("one_class")
    counts = np.unique(labels, return_counts=True)[1]
    classes = len(counts)
    holders = equal_sizes(clients, classes)
    if clients < classes or (holders > counts).any():
        raise DataError(
            f"partition = 'one_class' cannot divide {classes} classes, the smallest with {counts.min()} examples, "
            f"among clients = {clients}; use from {classes} to {classes * counts.min()} clients"
        )
    table = np.zeros((clients, classes), dtype=np.int64)
    for number, count in enumerate(counts):
        table[number::classes, number] = equal_sizes(int(count), int(holders[number]))
    return _dealt(table, labels, generator(seed))


def class_groups(source: Divisible, clients: int, seed: int) -> Parts:
    """Label skew: a third of the clients has the first half of the classes, a third the second, a third all.

    FedLWS, figure 5, with 12 clients and ten classes. All sizes are equal or differ by one. Of an odd number of
    classes, the first half has one more. Raises DataError if `clients` is not a multiple of three, or if a half of
    the classes does not have more examples than its clients get.
    """
    labels = source.needs_labels("class_groups")
    counts = np.unique(labels, return_counts=True)[1]
    if clients % 3 or len(counts) < 2:
        near = max(3, clients // 3 * 3)
        raise DataError(
            f"partition = 'class_groups' cannot divide {len(counts)} classes among clients = {clients}: it needs "
            f"a multiple of three clients and at least two classes; use clients={near} or clients={near + 3}"
        )
    third, half = clients // 3, (len(counts) + 1) // 2
    allowed = np.ones((clients, len(counts)), dtype=bool)
    allowed[:third, half:] = False
    allowed[third : 2 * third, :half] = False
    table = table_with_sums(allowed, equal_sizes(len(labels), clients), counts, 0)
    if table is None or not table[2 * third :, :half].any() or not table[2 * third :, half:].any():
        raise DataError(
            "partition = 'class_groups' gives a third of all examples to clients with one half of the classes, "
            f"but the halves have {counts[:half].sum()} and {counts[half:].sum()} of {len(labels)} examples; use "
            "a task with classes of similar size"
        )
    return _dealt(table, labels, generator(seed))


def sorted_shards(
    source: Divisible,
    clients: int,
    seed: int,
    *,
    shards_per_client: Annotated[
        int,
        Setting("number of shards of each client; 1 divides the sorted data evenly", least=1, most=MOST_EXAMPLES),
    ] = 2,
) -> Parts:
    """Label skew: the data, sorted by class, are cut into equal shards; each client gets c random ones.

    McMahan et al. (2017); Fedalr has c = 2; with c = 1 it is 2D-LRD's even division of the sorted data (Zhao et
    al., 2018). The shards differ by at most one example, so every example is used: Flower's partitioner drops the
    remainder and is not used here. A shard at the border of two classes contains both. Raises DataError for more
    shards than examples.
    """
    labels = source.needs_labels("sorted_shards")
    count = clients * shards_per_client
    if count > len(labels):
        raise DataError(
            f"partition.shards_per_client = {shards_per_client} with clients = {clients} gives {count} shards, "
            f"but the task has {len(labels)} examples; use at most "
            f"partition.shards_per_client={len(labels) // clients}"
        )
    rng = generator(seed)
    mixed = rng.permutation(len(labels))
    cut = np.array_split(mixed[np.argsort(labels[mixed], kind="stable")], count)
    drawn = rng.permutation(count).reshape(clients, shards_per_client)
    return [rng.permutation(np.concatenate([cut[number] for number in numbers])) for numbers in drawn]


# ---------------------------------------------------------------- exact tables


def _held(
    labels: np.ndarray, sizes: np.ndarray, classes_per_client: int, rng: np.random.Generator, key: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """Which classes each client has, bool (clients, classes), and the number of examples of each class.

    Raises DataError if there are too few classes, too few clients for all classes, or too few examples.
    """
    counts = np.unique(labels, return_counts=True)[1]
    clients, classes = len(sizes), len(counts)
    words = key or f"partition.classes_per_client = {classes_per_client}"
    if key and classes_per_client > classes:
        raise DataError(f"{key} needs {classes_per_client} classes, but the task has {classes}; use another task")
    check_classes(classes_per_client, classes)
    if clients * classes_per_client < classes:
        raise DataError(
            f"{words} with clients = {clients} leaves some of the task's {classes} classes without a client; use "
            f"at least {-(-classes // classes_per_client)} clients"
        )
    if clients * classes_per_client > len(labels):
        raise DataError(
            f"{words} with clients = {clients} needs {clients * classes_per_client} examples, but the task has "
            f"{len(labels)}; use at most {len(labels) // classes_per_client} clients"
        )
    return classes_of_clients(counts, sizes, classes_per_client, rng), counts


def _exact(
    labels: np.ndarray,
    sizes: np.ndarray,
    classes_per_client: int,
    rng: np.random.Generator,
    advice: str,
    key: str = "",
) -> Parts:
    """Parts of exactly these sizes with exactly this number of classes.

    Not every choice of the clients' classes permits the sizes, so it is drawn again up to `TRIES` times; then
    DataError is raised.
    """
    for _ in range(TRIES):
        held, counts = _held(labels, sizes, classes_per_client, rng, key)
        table = table_with_sums(held, sizes, counts, 1)
        if table is not None:
            return _dealt(table, labels, rng)
    raise DataError(
        f"{len(sizes)} clients with {sizes.min()} to {sizes.max()} examples of {classes_per_client} classes each "
        f"cannot be formed from {len(counts)} classes with {counts.min()} to {counts.max()} examples; {advice}"
    )


def _dealt(table: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> Parts:
    """Random examples in random order: `table[k, c]` of the c-th class for client k."""
    by_client: list[list[np.ndarray]] = [[] for _ in table]
    for number, name in enumerate(np.unique(labels)):
        mixed = rng.permutation(np.flatnonzero(labels == name))
        for client, piece in enumerate(np.split(mixed, np.cumsum(table[:, number])[:-1])):
            by_client[client].append(piece)
    return [rng.permutation(np.concatenate(pieces)) for pieces in by_client]
