"""A client's id and its examples: those in the node's own data if it has some, else its part of the task's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from flwr.app import Context

from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.parts import Choice
from fedstride.plain_numbers import is_whole
from fedstride.tasks import own_files as node_data
from fedstride.tasks.statistics.over_sites import Report

if TYPE_CHECKING:
    from ..message_settings import MessageSettings


class ClientData(NamedTuple):
    """A client's id and its examples: those of x and y at the positions `members`, or all if `members` is None.

    `own`: the node's own data of which they are; None: they are of the task's data.
    """

    client_id: int
    x: np.ndarray
    y: np.ndarray
    members: np.ndarray | None
    own: node_data.NodeData | None = None

    def draws(self, said: MessageSettings) -> np.ndarray:
        """The draws of the hold-out of x and y."""
        return said.draws if self.own is None else self.own.draws(said.split_seed)

    def seed(self, said: MessageSettings) -> int:
        """The seed of the client's draws: the order of its examples, dropout, augmentation.

        A site with a secret of its own draws them by it and by all settings together. So no two runs of other
        settings begin with the same examples, and their difference is not of a few.
        """
        if self.own is None or self.own.order is None:
            return said.seed
        return int.from_bytes(hashlib.blake2b(said.digest, key=self.own.order, digest_size=8).digest(), "big") >> 1

    @property
    def said(self) -> Report | None:
        """What a node says of its own data; None: it may be computed."""
        return None if self.own is None else self.own.said

    @property
    def min_rows(self) -> int:
        """The smallest number of examples of which something is said."""
        return 1 if self.own is None else self.own.min_rows


def client_data(context: Context, said: MessageSettings) -> ClientData:
    """The node's own data if its node-config names some, else its part of the task's data.

    A node with its own data needs none of the task's. Raises ConfigError if the task's data on this node have
    another form than the server's.
    """
    path = own_data_path(context, said.partition)
    if path is None:
        client_id = partition_id(context, said.clients)
        return ClientData(client_id, said.source.train_x, said.source.train_y, said.divided[client_id])
    # Mini-batches are drawn from the client id. The SuperLink draws node ids at random; with a partition id the
    # results are the same on every SuperLink.
    has_id = "partition-id" in context.node_config
    client_id = partition_id(context, said.clients) if has_id else context.node_id
    own_data = node_data.load(path, said.spec)
    return ClientData(client_id, own_data.x, own_data.y, None, own_data)


def own_data_path(context: Context, partition: Choice) -> str | None:
    """The path of the node's own data; None if the node uses a part of the task's data.

    Raises ConfigError if the node-config has an invalid path, or no path although partition=own needs one.
    """
    path = context.node_config.get("data")
    if path is None and partition.name != "own":
        return None
    if not isinstance(path, str) or not path:
        raise ConfigError(
            f"node-config data = {path!r} is not allowed with partition = {partition.name!r}: it must be the path "
            "of this node's data; start the node with --node-config 'data=\"/path/of/its/data\"'"
        )
    return path


def partition_id(context: Context, clients: int) -> int:
    """The partition id in the node-config. Raises ConfigError if it is missing or out of range."""
    value = context.node_config.get("partition-id")
    if not is_whole(value) or not 0 <= value < clients:
        raise ConfigError(
            f"node-config partition-id = {value!r} is not allowed: it must be a whole number from 0 to "
            f"{clients - 1} (clients = {clients}); start the node with --node-config "
            f'"partition-id=0 num-partitions={clients}"'
        )
    return value


def in_words(node_config: Mapping[str, Any], client_id: int) -> str:
    """The client in a line of a log: the node's name, or at a desk that of its data, or its number."""
    if node_config.get(wire.DESK) is True and "data" in node_config:
        return Path(str(node_config["data"])).stem
    return str(node_config.get(wire.NAME) or f"client {client_id}")
