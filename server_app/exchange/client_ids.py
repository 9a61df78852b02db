"""Which node is which client: a client's id belongs to the key of the node that used it first.

A node states its id itself, in its reply to the roll call, so the statement is only a claim. Flower gives a
registered node the same node id after each restart, by its key, so the key is the name of the node.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from fedstride.errors import ReplyError
from fedstride.flower.grids import ConnectedNode


class Owner(NamedTuple):
    """The node that an id belongs to."""

    key: str  # the digest of its public key, or its node id; see `grids.ConnectedNode`
    label: str  # the node in words, for messages
    name: str = ""  # the client's name in records; empty: its id is used


class Claims:
    """The owners of the client ids of a run.

    `clients`: the number of clients. `node_ids`: "fixed", or "any", with which another node may take an id while
    its owner is not connected. `owners`: those of an earlier part of the run, by client id.
    """

    def __init__(self, clients: int, node_ids: str = "fixed", owners: Mapping[int, Owner] | None = None) -> None:
        self.owners = dict(owners or {})
        self._id_of = {owner.key: client for client, owner in reversed(self.owners.items())}  # the first of a key
        self._clients = clients
        self._fixed = node_ids == "fixed"

    def settle(self, claim: Any, node: ConnectedNode, connected: Collection[str], name: str = "") -> int:
        """The client id of a node that claims `claim`, which belongs to it from now on, and so does its name.

        `connected`: the keys of the connected nodes. Raises ReplyError, with both nodes, if the claim is not
        valid; nothing changes then.
        """
        client = self._valid(claim, node)
        owner = self.owners.get(client)
        if owner is not None and owner.key != node.key and (self._fixed or owner.key in connected):
            raise ReplyError(
                f"{node} claims client id {client}, which belongs to {owner.label}; give each node another "
                f"partition-id in --node-config, from 0 to {self._clients - 1}{self._advice()}"
            )
        before = self._id_of.get(node.key, client)
        if before != client and self._fixed:
            raise ReplyError(
                f"{node} claims client id {client}, but it is client {before} of this run; start it with its "
                f"former partition-id{self._advice()}"
            )
        namesakes = (other for other in self._others(node, connected) if other.name == name)
        if name and (namesake := next(namesakes, None)) is not None:
            raise ReplyError(
                f"{node} has the name {name!r}, which belongs to {namesake.label}; give each node another name"
                f"{self._advice()}"
            )
        if owner is None and self._is_full(node, connected):
            raise ReplyError(
                f"{node} claims client id {client}, but all clients = {self._clients} ids belong to other nodes"
                f"{self._advice()}"
            )
        for changed in (before, client):
            if changed in self.owners:
                self._id_of.pop(self.owners[changed].key, None)
        self.owners.pop(before, None)
        self.owners[client] = Owner(node.key, str(node), name)
        self._id_of[node.key] = client
        return client

    def id_of(self, node: ConnectedNode) -> int | None:
        """The id that belongs to this node, if one does."""
        return self._id_of.get(node.key)

    def _others(self, node: ConnectedNode, connected: Collection[str]) -> Iterator[Owner]:
        """The owners whose ids this node cannot take."""
        return (o for o in self.owners.values() if o.key != node.key and (self._fixed or o.key in connected))

    def _is_full(self, node: ConnectedNode, connected: Collection[str]) -> bool:
        """Whether all ids belong to others. Counted only if it can be, because a roll call asks for each node."""
        return len(self.owners) >= self._clients and sum(1 for _ in self._others(node, connected)) >= self._clients

    def _valid(self, claim: Any, node: ConnectedNode) -> int:
        if type(claim) is int and (0 <= claim < self._clients or claim == node.id):  # True is an int, but no id
            return claim
        raise ReplyError(
            f"{node} claims client id {repr(claim)[:40]}, which is not allowed: it must be a whole number from 0 "
            f"to {self._clients - 1} (its partition-id), or the node's own id"
        )

    def _advice(self) -> str:
        if not self._fixed:
            return ""
        return "; if a node without a registered key was restarted, set node_ids=any"
