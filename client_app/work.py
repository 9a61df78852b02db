"""From a message's plain values to the parts of a round: what to train, on what, with which rule.

Knows the registries of rules and objectives and what a process keeps from message to message; does not
know the local loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import Context
from torch import nn

from fedstride import schema, wire
from fedstride.errors import ConfigError
from fedstride.flat import unflatten
from fedstride.schema import ClientConfig, ObjectiveConfig, PartitionConfig, TaskConfig
from fedstride.tasks import data, models, own, partitions
from fedstride.tasks.tensors import Examples, pick_device

from . import privacy
from .objectives import fedprox, plain
from .objectives.plain import Objective
from .privacy import Protection
from .rules import fednlr, sgd
from .rules.sgd import RateRule

RULES: dict[str, Callable[[ClientConfig], RateRule]] = {"sgd": sgd.make, "fednlr": fednlr.make}
OBJECTIVES: dict[str, Callable[..., Objective]] = {"plain": plain.Plain, "fedprox": fedprox.FedProx}


@dataclass(frozen=True)
class Work:
    """One client's part of one round, read from a message and the client's context."""

    client_id: int  # the partition id; the node id where a node with its own data has none
    server_round: int
    seed: int
    client: ClientConfig
    objective: ObjectiveConfig
    examples: Examples
    model: nn.Module
    device: torch.device
    protection: Protection

    @property
    def lr(self) -> float:
        """eta of this round."""
        return self.client.lr * self.client.lr_decay ** (self.server_round - 1)


def read(config: Mapping[str, Any], context: Context) -> Work:
    """The work that a message asks for. Raises ConfigError for what this client does not know."""
    client = unflatten("client", config, schema.CLIENTS)
    torch.set_num_threads(client.threads)
    device = pick_device(client.device)
    task = unflatten("task", config, schema.TASKS)
    partition = unflatten("partition", config, schema.PARTITIONS)
    objective = unflatten("objective", config, schema.OBJECTIVES)
    model = unflatten("model", config, schema.MODELS)
    seed = int(config[wire.SEED])
    source = data.load(task.name)
    held = _held(context, task, partition, int(config[wire.NUM_CLIENTS]), seed)
    return Work(
        client_id=held.client_id,
        server_round=int(config.get(wire.SERVER_ROUND, 0)),
        seed=seed,
        client=client,
        objective=objective,
        examples=Examples(held.x, held.y, mean=source.mean, std=source.std, device=device, members=held.members),
        model=_network(model.name, source.shape, source.classes, str(device)),
        device=device,
        protection=privacy.read(config, context.node_config),
    )


class Held(NamedTuple):
    """Who a client is and what it holds: the positions `members` of x and y, or all of them."""

    client_id: int
    x: np.ndarray
    y: np.ndarray
    members: np.ndarray | None


def _held(context: Context, task: TaskConfig, partition: PartitionConfig, clients: int, seed: int) -> Held:
    """A node's own data where it names some, else its part of the task's."""
    source = data.load(task.name)
    path = own_data(context, partition)
    if path is None:
        client_id = partition_id(context, clients)
        part = members(task, partition, clients, seed)[client_id]
        return Held(client_id, source.train_x, source.train_y, part)
    # Batches are drawn from the client id. A node id is the SuperLink's draw; a partition id gives the same
    # bits on any SuperLink.
    client_id = partition_id(context, clients) if "partition-id" in context.node_config else context.node_id
    found = own.load(path, source.shape, source.classes)
    return Held(client_id, found.x, found.y, None)


def own_data(context: Context, partition: PartitionConfig) -> str | None:
    """Where the node's own data are; None where it takes a part of the task's.

    Raises ConfigError where it should bring some and does not, or names them wrongly.
    """
    path = context.node_config.get("data")
    if path is None and partition.name != "own":
        return None
    if not isinstance(path, str) or not path:
        raise ConfigError(
            f"node-config data = {path!r} is not allowed with partition = {partition.name!r}: it must name this "
            "node's data; start the node with --node-config 'data=\"/path/of/its/data\"'"
        )
    return path


def partition_id(context: Context, clients: int) -> int:
    """Which part of the data is this client's. Raises ConfigError where its node does not say, or wrongly."""
    value = context.node_config.get("partition-id")
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < clients:
        raise ConfigError(
            f"node-config partition-id = {value!r} is not allowed: a whole number from 0 to {clients - 1} is "
            f'(clients = {clients}); start the node with --node-config "partition-id=0 num-partitions={clients}"'
        )
    return value


def members(task: TaskConfig, partition: PartitionConfig, clients: int, seed: int) -> list[np.ndarray]:
    """Who holds what of the task's training examples."""
    return _members(task.name, partition.name, tuple(sorted(vars(partition).items())), clients, seed)


@lru_cache(maxsize=8)
def _members(
    task: str, kind: str, settings: tuple[tuple[str, Any], ...], clients: int, seed: int
) -> list[np.ndarray]:
    config = schema.PARTITIONS[kind](**dict(settings))
    return partitions.partition(config, data.load(task).train_y, clients, seed)


@lru_cache(maxsize=4)
def _network(name: str, shape: tuple[int, ...], classes: int, device: str) -> nn.Module:
    """A network that a process uses for all its clients; its weights are loaded anew each time."""
    return models.build(schema.MODELS[name](name=name), shape, classes, seed=0).to(device)
