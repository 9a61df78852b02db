"""Partitions: which training examples each client has, drawn from the run's seed and cached on disk.

The draws use flwr-datasets. Its import takes seconds; because of the cache it is needed once per partition and not
once per process.
"""

from __future__ import annotations

import hashlib
import warnings
from typing import Annotated, Any

import numpy as np

from .. import seeds
from ..errors import DataError
from ..parts import Choice
from ..settings import MOST_CLASSES, MOST_EXAMPLES, Setting
from .cache import cached
from .parts import PARTITIONS

Parts = list[np.ndarray]


def partition(config: Choice, labels: np.ndarray, clients: int, seed: int) -> Parts:
    """The positions in `labels` of each client's examples: int64 arrays, never empty.

    The parts of the built-in partitions are disjoint.
    Raises ConfigError for an unknown name, DataError if the data cannot be divided in this way.
    """
    if clients > len(labels):
        raise DataError(f"clients = {clients} is more than the task's {len(labels)} training examples; use fewer")
    key = {
        "partition": PARTITIONS.flatten(config),
        "clients": clients,
        "seed": seed,
        "labels": hashlib.sha256(np.ascontiguousarray(labels).tobytes()).hexdigest(),
    }

    def make() -> dict[str, np.ndarray]:
        parts = PARTITIONS.make(config, labels, clients, seeds.derive(seed, "partition"))
        empty = [k for k, part in enumerate(parts) if len(part) == 0]
        if empty:
            raise DataError(
                f"partition = {config.name!r} gives no examples to the clients {empty}; use fewer clients"
            )
        return {
            "members": np.concatenate([np.asarray(part, dtype=np.int64) for part in parts]),
            "ends": np.cumsum([len(part) for part in parts]),
        }

    arrays = cached("partition", key, make)
    return np.split(arrays["members"], arrays["ends"][:-1])


def iid(labels: np.ndarray, clients: int, seed: int) -> Parts:
    """Parts of equal size of the shuffled data."""
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(labels))
    return np.array_split(order, clients)


def dirichlet(
    labels: np.ndarray,
    clients: int,
    seed: int,
    *,
    alpha: Annotated[
        float, Setting("concentration of the Dirichlet distribution; smaller is more skewed", above=0)
    ] = 0.1,
    min_size: Annotated[
        int, Setting("minimum number of examples of each client", least=1, most=MOST_EXAMPLES)
    ] = 10,
    balanced: Annotated[bool, Setting("give no more examples to a client that has an equal share")] = False,
) -> Parts:
    """Label skew by Dirichlet draws (Yurochkin et al., ICML 2019), with Flower's partitioner."""
    from flwr_datasets.partitioner import DirichletPartitioner

    partitioner = DirichletPartitioner(
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


def pathological(
    labels: np.ndarray,
    clients: int,
    seed: int,
    *,
    classes_per_client: Annotated[
        int, Setting("number of classes of each client", least=1, most=MOST_CLASSES)
    ] = 2,
) -> Parts:
    """Label skew: each client has examples of a few classes only, with Flower's partitioner."""
    from flwr_datasets.partitioner import PathologicalPartitioner

    classes = len(np.unique(labels))
    if classes_per_client > classes:
        raise DataError(f"partition.classes_per_client = {classes_per_client}, but the task has {classes} classes")
    partitioner = PathologicalPartitioner(
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


def own(labels: np.ndarray, clients: int, seed: int) -> Parts:
    """Always raises DataError: with this partition each node reads its own data, and nothing is divided."""
    raise DataError(
        "partition = 'own' does not divide the task's data: each node of a deployment has its own data, given "
        "with --node-config 'data=\"/path\"' (docs/deployment.md); choose another partition here"
    )
