"""Who takes part: the roll call, and the cohort of each round.

Knows nodes and client ids; does not know what clients do. From the roll call on a client goes by its
partition id, so that nothing depends on the random ids that Flower gives to nodes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from logging import INFO, WARNING
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedstride import flower, seeds, wire
from fedstride.errors import ConfigError, ReplyError, RunError, last_line
from fedstride.flower import log

from .config.schema import Config
from .exchange import exchange

LATE_CALL_SECONDS = 120.0  # how long a round waits for the answer of a node that joined late


def check_nodes(grid: Grid, config: Config) -> list[int]:
    """The federation's nodes, once enough of them are there.

    Enough is `min_clients`, by default all `clients`. Raises ConfigError where their number is wrong: at
    once in a simulation and where there are too many, after `node_wait` seconds in a deployment.
    """
    deadline = time.monotonic() + (0.0 if flower.is_simulation(grid) else config.node_wait)
    while len(nodes := sorted(grid.get_node_ids())) < config.start_size and time.monotonic() < deadline:
        time.sleep(0.5)
    if not config.start_size <= len(nodes) <= config.clients:
        raise ConfigError(
            f"clients = {config.clients}, but the federation has {len(nodes)} nodes: pass --federation-config "
            f'"num-supernodes={config.clients} client-resources-num-cpus=1" to flwr run (a simulation), start '
            f"{config.clients} SuperNodes (a deployment), or set clients={len(nodes)}"
        )
    return nodes


class Roster:
    """The clients that answered, and the node at which each is now."""

    def __init__(self, grid: Grid, config: Config, told: ConfigRecord) -> None:
        self._grid = grid
        self._config = config
        self._told = told
        self._node_of: dict[int, int] = {}
        self._asked: set[int] = set()
        self.facts: dict[int, Mapping[str, Any]] = {}

    def call(self, nodes: Iterable[int]) -> None:
        """Ask the nodes of the start who they are.

        Raises ConfigError where two claim one partition, RunError where fewer than enough can take part.
        """
        faults = self._ask(sorted(nodes), self._config.timeout)
        doubled = [fault for fault in faults if "claim" in fault]
        if doubled:
            raise ConfigError(doubled[0])
        if len(self._node_of) < self._config.start_size:
            raise RunError(
                f"{len(self._node_of)} of at least {self._config.start_size} clients can take part: "
                f"{'; '.join(faults[:3])}"
            )

    def refresh(self) -> None:
        """Call the nodes that have come since; wait for some where none is left."""
        present = self._present()
        deadline = time.monotonic() + self._config.node_wait
        while not present and time.monotonic() < deadline:
            time.sleep(0.5)
            present = self._present()
        self._asked &= present  # a node that went and comes back is asked again
        newcomers = sorted(present - self._asked)
        for fault in self._ask(newcomers, min(self._config.timeout, LATE_CALL_SECONDS)):
            log(WARNING, "%s", fault)

    def cohort(self, server_round: int) -> list[int]:
        """Nodes of the round's clients, in the order of client ids: a draw from (seed, round) of those present."""
        present = self._present()
        clients = sorted(client for client, node in self._node_of.items() if node in present)
        size = self._config.cohort_size
        if size < len(clients):
            rng = seeds.generator(self._config.seed, "cohort", server_round)
            clients = sorted(clients[i] for i in rng.choice(len(clients), size, replace=False))
        return [self._node_of[client] for client in clients]

    def client_of(self, node: int) -> int:
        """The client id of a node; the node id itself for a stranger."""
        return next((client for client, known in self._node_of.items() if known == node), node)

    def _present(self) -> set[int]:
        return set(self._grid.get_node_ids())

    def _ask(self, nodes: list[int], timeout: float) -> list[str]:
        """Take in the nodes that answer; a line for each that cannot take part."""
        if not nodes:
            return []
        content = RecordDict({wire.CONFIG: self._told})
        messages = [Message(content=content, message_type=MessageType.QUERY, dst_node_id=node) for node in nodes]
        replies = exchange(self._grid, messages, timeout=timeout)
        self._asked |= set(nodes)
        faults = []
        for node in nodes:
            try:
                self._take_in(node, _facts(node, replies.get(node)))
            except ReplyError as error:
                faults.append(str(error))
        return faults

    def _take_in(self, node: int, facts: Mapping[str, Any]) -> None:
        client = int(facts.get(wire.CLIENT_ID, node))
        before = self._node_of.get(client)
        if before is not None and before != node and before in self._present():
            raise ReplyError(
                f"two nodes claim partition-id = {client}: give each node its own in --node-config, "
                f"from 0 to {self._config.clients - 1}"
            )
        if before is not None:
            log(INFO, "client %d is back, now at node %d", client, node)
        self._node_of[client] = node
        self.facts[client] = facts


def _facts(node: int, reply: Message | None) -> Mapping[str, Any]:
    if reply is None:
        raise ReplyError(f"node {node} did not answer the roll call in time; see its log")
    if reply.has_error():
        reason = last_line(reply.error.reason)
        raise ReplyError(f"node {node} cannot take part (code {reply.error.code}): {reason}")
    record = reply.content.config_records.get(wire.ROLL_CALL) if reply.has_content() else None
    if record is None or not isinstance(record.get(wire.CLIENT_ID, 0), int):
        raise ReplyError(f"node {node} answered the roll call without saying who it is")
    return dict(record)
