"""Partitions: which training examples each client has, drawn from the run's seed and cached on disk.

Those with exact numbers of classes for each client are in `by_classes.py`. The draws use flwr-datasets if it
has the scheme. Its import takes seconds; because of the cache it is needed once per partition and not once per
process. docs/partitions.md compares all schemes and names their sources.
"""

from __future__ import annotations

import hashlib
import warnings
from typing import Annotated, Any

import numpy as np

from ... import seeds
from ...errors import DataError
from ...parts import Choice
from ...settings import MOST_CLASSES, MOST_EXAMPLES, Setting
from ...user_parts import code_of as own_code
from ..cache import cached
from ..registry import PARTITIONS
from .checked_parts import checked_parts
from .client_sizes import equal_sizes, power_law_sizes
from .divisible_examples import Divisible

Parts = list[np.ndarray]

ALPHA = Setting("concentration of the Dirichlet distribution; smaller is more skewed", above=0)
CLASSES = Setting("number of classes of each client", least=1, most=MOST_CLASSES)
MIN_SIZE = Setting("minimum number of examples of each client", least=1, most=MOST_EXAMPLES)
EXPONENT = Setting("exponent of the power law of the sizes; 0 gives equal sizes", least=0)


def partition(config: Choice, source: Divisible, clients: int, seed: int) -> Parts:
    """The positions of each client's examples in the task's training data: int64 arrays, never empty.

    Without those that `source` leaves out. The parts of the built-in partitions are disjoint; all but
    `pathological` use every example. Raises ConfigError for an unknown name, DataError if the data cannot be
    divided in this way.
    """
    if not len(source):
        raise DataError(
            "the task has no examples to divide, they are in the nodes' own files: use partition=own, and start "
            "each node with --node-config 'data=\"/path/of/its/data\"'"
        )
    if clients > len(source):
        raise DataError(f"clients = {clients} is more than the task's {len(source)} training examples; use fewer")
    key = {
        "partition": PARTITIONS.flatten(config),
        "clients": clients,
        "seed": seed,
        "examples": len(source),
        "labels": _digest(source.labels),
        "groups": _digest(source.groups),
    }
    if code := own_code(PARTITIONS.find(config.name)):
        key |= {"code": code, "checked": True}  # a user's own may be edited; versions before did not check it

    def make() -> dict[str, np.ndarray]:
        parts = PARTITIONS.make(config, source, clients, seeds.derive(seed, "partition"))
        parts = checked_parts(parts, f"partition = {config.name!r}", len(source), clients)
        return {
            "members": np.concatenate(parts),
            "ends": np.cumsum([len(part) for part in parts]),
        }

    arrays = cached("partition", key, make)
    members = arrays["members"] if source.positions is None else source.positions[arrays["members"]]
    return np.split(members, arrays["ends"][:-1])


def _digest(values: np.ndarray | None) -> str | None:
    return None if values is None else hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


# ---------------------------------------------------------------- without classes


def iid(source: Divisible, clients: int, seed: int) -> Parts:
    """Parts of equal size of the shuffled data."""
    return np.array_split(generator(seed).permutation(len(source)), clients)


def quantity_skew(
    source: Divisible,
    clients: int,
    seed: int,
    *,
    exponent: Annotated[float, EXPONENT] = 1.0,
    min_size: Annotated[int, MIN_SIZE] = 10,
) -> Parts:
    """Size skew: parts of the shuffled data with sizes by a power law (FedNNNN, IID UB). Client 0 has most.

    The size of client k is proportional to (k + 1) ** -exponent, but at least `min_size`. The paper does not state
    the exponent. Raises DataError if there are fewer than `min_size` examples for each client.
    """
    sizes = power_law(source, clients, exponent, min_size)
    return np.split(generator(seed).permutation(len(source)), np.cumsum(sizes)[:-1])


# ---------------------------------------------------------------- by Dirichlet draws


def dirichlet(
    source: Divisible,
    clients: int,
    seed: int,
    *,
    alpha: Annotated[float, ALPHA] = 0.1,
    min_size: Annotated[int, MIN_SIZE] = 10,
    balanced: Annotated[bool, Setting("give no more examples to a client that has an equal share")] = False,
) -> Parts:
    """Label skew: each class is divided by a Dirichlet draw (Yurochkin et al., 2019), with Flower's partitioner.

    It is drawn again, up to ten times, until each client has `min_size` examples; then DataError is raised.
    """
    labels = source.needs_labels("dirichlet")
    partitioner = _partitioners().DirichletPartitioner(
        num_partitions=clients,
        partition_by="label",
        alpha=float(alpha),
        min_partition_size=min_size,
        self_balancing=balanced,
        seed=seed,
    )
    advice = (
        f"partition.alpha = {alpha:g} gave no draw in which each of the {clients} clients has at least "
        f"{min_size} of the {len(labels)} examples; raise partition.alpha or lower partition.min_size"
    )
    return _drawn(partitioner, labels, clients, advice)


def dirichlet_by_client(
    source: Divisible, clients: int, seed: int, *, alpha: Annotated[float, ALPHA] = 0.1
) -> Parts:
    """Label skew: the class proportions of each client are a Dirichlet draw (Hsu et al., 2019), sizes are equal.

    With Flower's partitioner: a client is chosen at random, one of its classes is drawn, and the client gets the
    next example of this class. A class that is used up is left out, and the other proportions are rescaled, so
    every example is used and the last clients get what is left. Sizes differ by at most one.

    `alpha` is the parameter of each class. In the notation of Hsu et al., with equally frequent classes, it is
    their concentration divided by the number of classes. Raises DataError if `alpha` is so small that all
    proportions of a client are zero when its classes are used up.
    """
    labels = source.needs_labels("dirichlet_by_client")
    partitioner = _partitioners().InnerDirichletPartitioner(
        partition_sizes=equal_sizes(len(labels), clients),
        partition_by="label",
        alpha=float(alpha),
        seed=seed,
    )
    advice = (
        f"partition.alpha = {alpha:g} gave a client only proportions of zero for the classes that were left; "
        "raise partition.alpha, or use another seed"
    )
    return _drawn(partitioner, np.unique(labels, return_inverse=True)[1], clients, advice)


# ---------------------------------------------------------------- a few classes for each client


def pathological(
    source: Divisible, clients: int, seed: int, *, classes_per_client: Annotated[int, CLASSES] = 2
) -> Parts:
    """Label skew: each client has examples of a few consecutive classes, with Flower's partitioner.

    Client k has the classes k, k + 1, ... modulo the number of classes. A class is divided evenly among its
    clients. With `clients + classes_per_client <= classes`, some classes have no client, and their examples are
    not used.
    """
    labels = source.needs_labels("pathological")
    classes = len(np.unique(labels))
    check_classes(classes_per_client, classes)
    partitioner = _partitioners().PathologicalPartitioner(
        num_partitions=clients,
        partition_by="label",
        num_classes_per_partition=classes_per_client,
        class_assignment_mode="deterministic",
        seed=seed,
    )
    advice = (
        f"{clients} clients with {classes_per_client} classes each cannot be drawn from {classes} classes; change "
        "clients or partition.classes_per_client"
    )
    return _drawn(partitioner, labels, clients, advice)


# ---------------------------------------------------------------- by groups


def by_group(source: Divisible, clients: int, seed: int) -> Parts:
    """Feature shift: a client has examples of its own groups only, such as speakers or domains (FedLWS, table 2).

    With at least as many groups as clients, each group belongs to one random client, and the clients' numbers of
    groups differ by at most one. With more clients than groups, each client has one group, and each group is
    divided evenly among consecutive clients; their number is about proportional to the size of the group.
    """
    groups = source.needs_groups("by_group")
    names, counts = np.unique(groups, return_counts=True)
    rng = generator(seed)
    mixed = rng.permutation(len(groups))
    if len(names) >= clients:
        return [mixed[np.isin(groups[mixed], share)] for share in np.array_split(rng.permutation(names), clients)]
    holders = np.ones(len(names), dtype=np.int64)
    for _ in range(clients - len(names)):
        holders[np.argmax(counts / holders)] += 1
    members = [mixed[groups[mixed] == name] for name in names]
    return [part for group, many in zip(members, holders, strict=True) for part in np.array_split(group, many)]


# ---------------------------------------------------------------- nothing to divide


def own(
    source: Divisible,
    clients: int,
    seed: int,
    *,
    files: Annotated[
        list[str] | None,
        Setting(
            "for `fedstride run` only: a path for each client, with its own data, to try out a deployment",
            extends=True,  # a client compares its examples itself, wherever the file is
            path=True,
        ),
    ] = None,
) -> Parts:
    """Always raises DataError: with this partition each node reads its own data, and nothing is divided."""
    raise DataError(
        "partition = 'own' does not divide the task's data: each node of a deployment has its own data, given "
        "with --node-config 'data=\"/path\"' (docs/node-data.md); choose another partition here"
    )


# ---------------------------------------------------------------- what several partitions share


def generator(seed: int) -> np.random.Generator:
    """The generator of a partition's draws."""
    return np.random.Generator(np.random.PCG64(seed))


def power_law(source: Divisible, clients: int, exponent: float, min_size: int) -> np.ndarray:
    """The sizes of a power law, client 0 has most. Raises DataError for too large a `min_size`."""
    if clients * min_size > len(source):
        raise DataError(
            f"partition.min_size = {min_size} for clients = {clients} needs {clients * min_size} examples, but "
            f"the task has {len(source)}; use partition.min_size={len(source) // clients} or fewer clients"
        )
    return power_law_sizes(len(source), clients, exponent, min_size)


def check_classes(classes_per_client: int, classes: int) -> None:
    """Raise DataError for more classes of each client than the task has."""
    if classes_per_client > classes:
        raise DataError(
            f"partition.classes_per_client = {classes_per_client}, but the task has {classes} classes; use at "
            f"most {classes}"
        )


def _partitioners() -> Any:
    """The module `flwr_datasets.partitioner`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # in a notebook, that the widgets of its progress bars are not installed
        from flwr_datasets import partitioner
    return partitioner


def _drawn(partitioner: Any, labels: np.ndarray, clients: int, advice: str) -> Parts:
    """The positions that a Flower partitioner gives to each client. Raises DataError with `advice` if it fails."""
    import datasets

    partitioner.dataset = datasets.Dataset.from_dict(
        {"label": np.asarray(labels), "position": np.arange(len(labels))}
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # each failed attempt warns; the last one raises
            return [
                np.asarray(partitioner.load_partition(k).with_format("numpy")["position"][:])
                for k in range(clients)
            ]
    except ValueError as error:
        raise DataError(f"{advice} ({str(error).splitlines()[0]})") from error
