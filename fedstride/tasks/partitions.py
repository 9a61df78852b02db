"""Who holds what: the examples of each client, drawn from the run's seed and kept on disk.

Knows labels and draws; does not know what is in an example beside its label. The draws are
Flower's (flwr-datasets), whose import costs seconds and is paid once per partition, not per process.
"""

from __future__ import annotations

import hashlib
import warnings
from typing import Annotated, Any

import numpy as np

from .. import seeds
from ..errors import DataError
from ..parts import Choice
from ..settings import Setting
from .cache import cached
from .parts import PARTITIONS

Parts = list[np.ndarray]


def partition(config: Choice, labels: np.ndarray, clients: int, seed: int) -> Parts:
    """Positions in `labels` that each of the clients holds: int64 arrays, disjoint, never empty.

    Raises ConfigError for an unknown name, DataError where the data cannot be divided so.
    """
    if clients > len(labels):
        raise DataError(f"clients = {clients}, but there are only {len(labels)} examples to train on")
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
                f"partition {config.name} leaves clients {empty} without an example; use fewer clients"
            )
        return {
            "members": np.concatenate([np.asarray(part, dtype=np.int64) for part in parts]),
            "ends": np.cumsum([len(part) for part in parts]),
        }

    arrays = cached("partition", key, make)
    return np.split(arrays["members"], arrays["ends"][:-1])


def iid(labels: np.ndarray, clients: int, seed: int) -> Parts:
    """Even parts of the shuffled data."""
    order = np.random.Generator(np.random.PCG64(seed)).permutation(len(labels))
    return np.array_split(order, clients)


def dirichlet(
    labels: np.ndarray,
    clients: int,
    seed: int,
    *,
    alpha: Annotated[float, Setting("concentration; small = more skewed", above=0)] = 0.1,
    min_size: Annotated[int, Setting("examples that every client gets at least", least=1)] = 10,
    balanced: Annotated[bool, Setting("stop giving to a client that has its even share")] = False,
) -> Parts:
    """Label skew by Dirichlet draws (Yurochkin et al., ICML 2019), Flower's partitioner."""
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
        f"partition.alpha = {alpha:g} gives no draw in which each of {clients} clients has "
        f"{min_size} of {len(labels)} examples; raise partition.alpha or lower partition.min_size"
    )
    return _drawn(partitioner, labels, clients, advice)


def pathological(
    labels: np.ndarray,
    clients: int,
    seed: int,
    *,
    classes_per_client: Annotated[int, Setting("classes of which each client holds examples", least=1)] = 2,
) -> Parts:
    """Label skew: each client holds examples of a few classes only; Flower's partitioner."""
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
    advice = f"{clients} clients with {classes_per_client} classes each cannot be drawn from {classes} classes"
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


def own(labels: np.ndarray, clients: int, seed: int) -> Parts:
    """Nothing is divided: what the nodes bring is theirs, and only they can read it. Raises DataError."""
    raise DataError(
        "partition = 'own' divides nothing: each node of a deployment brings its own data, named in its "
        "--node-config 'data=\"/path\"' (docs/deployment.md); choose another partition here"
    )
