"""The roll call, which finds out which client each node is, and the draw of the cohort of each round.

A client's id is its partition id. So results do not depend on the random ids that Flower gives to nodes.
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

LATE_CALL_SECONDS = 120.0  # longest wait of a round for the roll-call reply of a node that joined late


def check_nodes(grid: Grid, config: Config) -> list[int]:
    """Wait until `min_clients` nodes are connected (default: all `clients`), and return the nodes.

    Raises ConfigError for a wrong number of nodes: immediately in a simulation or if there are too many, after
    `node_wait` seconds if there are too few in a deployment.
    """
    deadline = time.monotonic() + (0.0 if flower.is_simulation(grid) else config.node_wait)
    while len(nodes := sorted(grid.get_node_ids())) < config.start_size and time.monotonic() < deadline:
        time.sleep(0.5)
    if not config.start_size <= len(nodes) <= config.clients:
        raise ConfigError(
            f"clients = {config.clients}, but the federation has {len(nodes)} nodes; in a simulation pass "
            f'--federation-config "num-supernodes={config.clients} client-resources-num-cpus=1" to flwr run, in a '
            f"deployment start {config.clients} SuperNodes, or set clients={len(nodes)}"
        )
    return nodes


class Roster:
    """The clients that replied to the roll call, and the current node of each.

    `client_config`: the configuration that is sent to every client. `facts`: what each client replied, by id.
    """

    def __init__(self, grid: Grid, config: Config, client_config: ConfigRecord) -> None:
        self._grid = grid
        self._config = config
        self._client_config = client_config
        self._node_of: dict[int, int] = {}
        self._asked: set[int] = set()
        self.facts: dict[int, Mapping[str, Any]] = {}

    def call(self, nodes: Iterable[int]) -> None:
        """Send the roll call to the nodes that are connected at the start of the run.

        Raises ConfigError if two nodes have the same partition id, RunError if too few clients can take part.
        """
        faults = self._ask(sorted(nodes), self._config.timeout)
        duplicates = [fault for fault in faults if "both have partition-id" in fault]
        if duplicates:
            raise ConfigError(duplicates[0])
        if len(self._node_of) < self._config.start_size:
            raise RunError(
                f"only {len(self._node_of)} of at least {self._config.start_size} clients can take part: "
                f"{'; '.join(faults[:3])}"
            )

    def refresh(self) -> None:
        """Send the roll call to new nodes. If no node is connected, wait up to `node_wait` seconds for one."""
        present = self._present()
        deadline = time.monotonic() + self._config.node_wait
        while not present and time.monotonic() < deadline:
            time.sleep(0.5)
            present = self._present()
        self._asked &= present  # a node that disconnected is asked again when it comes back
        newcomers = sorted(present - self._asked)
        for fault in self._ask(newcomers, min(self._config.timeout, LATE_CALL_SECONDS)):
            log(WARNING, "%s", fault)

    def cohort(self, server_round: int) -> list[int]:
        """The nodes of the round's cohort, in the order of client ids.

        The cohort is drawn from the connected clients, with a generator of (seed, round).
        """
        present = self._present()
        clients = sorted(client for client, node in self._node_of.items() if node in present)
        size = self._config.cohort_size
        if size < len(clients):
            rng = seeds.generator(self._config.seed, "cohort", server_round)
            clients = sorted(clients[i] for i in rng.choice(len(clients), size, replace=False))
        return [self._node_of[client] for client in clients]

    def client_of(self, node: int) -> int:
        """The client id of a node; the node id itself if the node is unknown."""
        return next((client for client, known in self._node_of.items() if known == node), node)

    def _present(self) -> set[int]:
        return set(self._grid.get_node_ids())

    def _ask(self, nodes: list[int], timeout: float) -> list[str]:
        """Send the roll call to these nodes and register the valid replies; return a line for each failed node."""
        if not nodes:
            return []
        content = RecordDict({wire.CONFIG: self._client_config})
        messages = [Message(content=content, message_type=MessageType.QUERY, dst_node_id=node) for node in nodes]
        replies = exchange(self._grid, messages, timeout=timeout)
        self._asked |= set(nodes)
        faults = []
        for node in nodes:
            try:
                self._register(node, _facts(node, replies.get(node)))
            except ReplyError as error:
                faults.append(str(error))
        return faults

    def _register(self, node: int, facts: Mapping[str, Any]) -> None:
        client = int(facts.get(wire.CLIENT_ID, node))
        before = self._node_of.get(client)
        if before is not None and before != node and before in self._present():
            raise ReplyError(
                f"nodes {before} and {node} both have partition-id = {client}; give each node a different one in "
                f"--node-config, from 0 to {self._config.clients - 1}"
            )
        if before is not None:
            log(INFO, "client %d is connected again, now as node %d", client, node)
        self._node_of[client] = node
        self.facts[client] = facts


def _facts(node: int, reply: Message | None) -> Mapping[str, Any]:
    if reply is None:
        raise ReplyError(f"node {node} did not reply to the roll call in time; see its log")
    if reply.has_error():
        reason = last_line(reply.error.reason)
        raise ReplyError(f"node {node} cannot take part (code {reply.error.code}): {reason}")
    record = reply.content.config_records.get(wire.ROLL_CALL) if reply.has_content() else None
    if record is None or not isinstance(record.get(wire.CLIENT_ID, 0), int):
        raise ReplyError(f"node {node} replied to the roll call without a valid client id")
    return dict(record)
