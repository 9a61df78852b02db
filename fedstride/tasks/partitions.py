"""Who holds what: the examples of each client, drawn from the run's seed and kept on disk.

Knows the partitions by name; does not know what is in an example beside its label. The draws are
Flower's (flwr-datasets), whose import costs seconds and is paid once per partition, not per process.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from fedstride import seeds
from fedstride.errors import DataError, unknown
from fedstride.flat import flatten
from fedstride.schema import DirichletConfig, PartitionConfig, PathologicalConfig
from fedstride.tasks.cache import cached

Parts = list[np.ndarray]


def partition(config: PartitionConfig, labels: np.ndarray, clients: int, seed: int) -> Parts:
    """Positions in `labels` that each of the clients holds: int64 arrays, disjoint, never empty.

    Raises ConfigError for an unknown name, DataError where the data cannot be divided so.
    """
    if config.name not in PARTITIONS:
        raise unknown("partition", config.name, PARTITIONS)
    if clients > len(labels):
        raise DataError(f"clients = {clients}, but there are only {len(labels)} examples to train on")
    key = {
        "partition": flatten("partition", config),
        "clients": clients,
        "seed": seed,
        "labels": hashlib.sha256(np.ascontiguousarray(labels).tobytes()).hexdigest(),
    }

    def make() -> dict[str, np.ndarray]:
        parts = PARTITIONS[config.name](config, labels, clients, seeds.derive(seed, "partition"))
        empty = [k for k, part in enumerate(parts) if len(part) == 0]
        if empty:
            raise DataError(
                f"partition {config.name} leaves clients {empty} without an example; use fewer clients"
            )
        return {
            "members": np.concatenate([np.asarray(part, dtype=np.int64) for part in parts]),
            "ends": np.cumsum([len(part) for part in parts]),
        }

    arrays = cached("partition", key, make)
    return np.split(arrays["members"], arrays["ends"][:-1])


def _iid(config: PartitionConfig, labels: np.ndarray, clients: int, seed: int) -> Parts:
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(labels))
    return np.array_split(order, clients)


def _dirichlet(config: PartitionConfig, labels: np.ndarray, clients: int, seed: int) -> Parts:
    from flwr_datasets.partitioner import DirichletPartitioner

    assert isinstance(config, DirichletConfig)
    partitioner = DirichletPartitioner(
        num_partitions=clients,
        partition_by="label",
        alpha=float(config.alpha),
        min_partition_size=config.min_size,
        self_balancing=config.balanced,
        seed=seed,
    )
    advice = (
        f"partition.alpha = {config.alpha:g} gives no draw in which each of {clients} clients has "
        f"{config.min_size} of {len(labels)} examples; raise partition.alpha or lower partition.min_size"
    )
    return _drawn(partitioner, labels, clients, advice)


def _pathological(config: PartitionConfig, labels: np.ndarray, clients: int, seed: int) -> Parts:
    from flwr_datasets.partitioner import PathologicalPartitioner

    assert isinstance(config, PathologicalConfig)
    classes = len(np.unique(labels))
    if config.classes_per_client > classes:
        raise DataError(
            f"partition.classes_per_client = {config.classes_per_client}, but the task has {classes} classes"
        )
    partitioner = PathologicalPartitioner(
        num_partitions=clients,
        partition_by="label",
        num_classes_per_partition=config.classes_per_client,
        class_assignment_mode="deterministic",
        seed=seed,
    )
    advice = (
        f"{clients} clients with {config.classes_per_client} classes each cannot be drawn from {classes} classes"
    )
    return _drawn(partitioner, labels, clients, advice)


def _drawn(partitioner: Any, labels: np.ndarray, clients: int, advice: str) -> Parts:
    """The positions that one of Flower's partitioners gives to each client."""
    import datasets

    partitioner.dataset = datasets.Dataset.from_dict(
        {"label": np.asarray(labels), "position": np.arange(len(labels))}
    )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # each vain attempt warns; the last one raises
            return [
                np.asarray(partitioner.load_partition(k).with_format("numpy")["position"][:])
                for k in range(clients)
            ]
    except ValueError as error:
        raise DataError(f"{advice} ({str(error).splitlines()[0]})") from error


def _own(config: PartitionConfig, labels: np.ndarray, clients: int, seed: int) -> Parts:
    """What the nodes bring is theirs, and only they can read it."""
    raise DataError(
        "partition = 'own' divides nothing: each node of a deployment brings its own data, named in its "
        "--node-config 'data=\"/path\"' (docs/deployment.md); choose another partition here"
    )


PARTITIONS: dict[str, Callable[[PartitionConfig, np.ndarray, int, int], Parts]] = {
    "iid": _iid,
    "dirichlet": _dirichlet,
    "pathological": _pathological,
    "own": _own,
}
