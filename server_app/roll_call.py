"""Who takes part: the roll call before round 1, and the cohort of each round (design, section 3).

Knows nodes and client ids; does not know what clients do. From the roll call on a client goes by its
partition id, so that nothing depends on the random ids that Flower gives to nodes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedstride import flower, seeds, wire
from fedstride.errors import ConfigError, RunError
from fedstride.schema import Config
from server_app.exchange import exchange


@dataclass(frozen=True)
class Roster:
    """The clients that answered: node id by client id, and what each said of itself."""

    nodes: Mapping[int, int]
    facts: Mapping[int, Mapping[str, Any]]

    def client_of(self, node: int) -> int:
        """The client id of a node; the node id itself for a stranger."""
        return next((client for client, n in self.nodes.items() if n == node), node)

    def cohort(self, size: int, *, seed: int, server_round: int) -> list[int]:
        """Node ids of the round's clients, in the order of client ids: a draw from (seed, round)."""
        clients = sorted(self.nodes)
        if size < len(clients):
            rng = seeds.generator(seed, "cohort", server_round)
            clients = sorted(clients[i] for i in rng.choice(len(clients), size, replace=False))
        return [self.nodes[client] for client in clients]


def check_nodes(grid: Grid, config: Config) -> list[int]:
    """The federation's nodes, once all clients are there.

    Raises ConfigError where their number is not the experiment's: at once in a simulation and where
    there are too many, after `node_wait` seconds in a deployment.
    """
    deadline = time.monotonic() + (0.0 if flower.is_simulation(grid) else config.node_wait)
    while len(nodes := sorted(grid.get_node_ids())) < config.clients and time.monotonic() < deadline:
        time.sleep(0.5)
    if len(nodes) != config.clients:
        raise ConfigError(
            f"clients = {config.clients}, but the federation has {len(nodes)} nodes: pass --federation-config "
            f'"num-supernodes={config.clients} client-resources-num-cpus=1" to flwr run (a simulation), start '
            f"{config.clients} SuperNodes (a deployment), or set clients={len(nodes)}"
        )
    return nodes


def call(grid: Grid, nodes: list[int], config: Config, told: ConfigRecord) -> Roster:
    """Ask every node who it is.

    Raises RunError where a node fails or does not answer, ConfigError where two claim one partition.
    """
    content = RecordDict({wire.CONFIG: told})
    messages = [Message(content=content, message_type=MessageType.QUERY, dst_node_id=node) for node in nodes]
    replies = exchange(grid, messages, timeout=config.timeout)
    by_client: dict[int, int] = {}
    facts: dict[int, Mapping[str, Any]] = {}
    for node in nodes:
        answer = _facts(node, replies.get(node))
        client = int(answer.get(wire.CLIENT_ID, node))
        if client in by_client:
            raise ConfigError(
                f"two nodes claim partition-id = {client}: give each node its own in --node-config, "
                f"from 0 to {config.clients - 1}"
            )
        by_client[client] = node
        facts[client] = answer
    return Roster(by_client, facts)


def _facts(node: int, reply: Message | None) -> Mapping[str, Any]:
    if reply is None:
        raise RunError(f"node {node} did not answer the roll call in time; see its log")
    if reply.has_error():
        reason = str(reply.error.reason or "no reason given").strip().splitlines()[-1]
        raise RunError(f"node {node} cannot take part (code {reply.error.code}): {reason}")
    return dict(reply.content.config_records[wire.ROLL_CALL])
