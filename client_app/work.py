"""From a message's plain values to one client's part of a round: what to train, on what, how protected.

Knows the tables of parts and what a process keeps from message to message; does not know the local loop, nor
what any part does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from flwr.app import Context
from torch import nn

from fedstride import wire
from fedstride.errors import ConfigError
from fedstride.own import load_bundled
from fedstride.parts import Choice
from fedstride.tasks import data, models, own, partitions
from fedstride.tasks.parts import MODELS, PARTITIONS, TASKS
from fedstride.tasks.tensors import Examples, pick_device

from . import protection
from .method import Job
from .parts import OBJECTIVES, RULES
from .protection import Protection


@dataclass(frozen=True)
class Work(Job):
    """A job as a message asks for it, with what is not the methods' business."""

    objective: Choice
    protection: Protection


def read(config: Mapping[str, Any], context: Context) -> Work:
    """The work that a message asks for. Raises ConfigError for what this client does not know."""
    load_bundled(config.get(wire.PARTS, []))
    client = RULES.unflatten(config)
    torch.set_num_threads(client.threads)
    device = pick_device(client.device)
    task, partition = TASKS.unflatten(config), PARTITIONS.unflatten(config)
    objective, model = OBJECTIVES.unflatten(config), MODELS.unflatten(config)
    seed = _whole(config, wire.SEED)
    source = data.load(task)
    held = _held(context, task, partition, _whole(config, wire.NUM_CLIENTS), seed)
    return Work(
        client_id=held.client_id,
        server_round=_whole(config, wire.SERVER_ROUND, 0),
        seed=seed,
        client=client,
        objective=objective,
        examples=Examples(held.x, held.y, mean=source.mean, std=source.std, device=device, members=held.members),
        model=_network(_key(MODELS.flatten(model)), source.shape, source.classes, str(device)),
        device=device,
        protection=protection.read(config, context.node_config),
    )


def _whole(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"{key} = {value!r} is not allowed: it must be a whole number of at least 0")
    return value


class Held(NamedTuple):
    """Who a client is and what it holds: the positions `members` of x and y, or all of them."""

    client_id: int
    x: np.ndarray
    y: np.ndarray
    members: np.ndarray | None


def _held(context: Context, task: Choice, partition: Choice, clients: int, seed: int) -> Held:
    """A node's own data where it names some, else its part of the task's."""
    source = data.load(task)
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


def own_data(context: Context, partition: Choice) -> str | None:
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


def members(task: Choice, partition: Choice, clients: int, seed: int) -> list[np.ndarray]:
    """Who holds what of the task's training examples."""
    return _members(_key(TASKS.flatten(task)), _key(PARTITIONS.flatten(partition)), clients, seed)


def _key(plain: Mapping[str, Any]) -> str:
    """A choice as text: the same for equal settings, of which some may be lists."""
    return json.dumps(plain, sort_keys=True)


@lru_cache(maxsize=8)
def _members(task: str, partition: str, clients: int, seed: int) -> list[np.ndarray]:
    labels = data.load(TASKS.unflatten(json.loads(task))).train_y
    return partitions.partition(PARTITIONS.unflatten(json.loads(partition)), labels, clients, seed)


@lru_cache(maxsize=4)
def _network(model: str, shape: tuple[int, ...], classes: int, device: str) -> nn.Module:
    """A network that a process uses for all its clients; its weights are loaded anew each time."""
    return models.build(MODELS.unflatten(json.loads(model)), shape, classes, seed=0).to(device)
