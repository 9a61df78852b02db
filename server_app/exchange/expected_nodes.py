"""Which connected nodes are meant to take part in a run, and the wait for them before it starts.

It knows what the SuperLink says of a node, such as its registered name. What a node says itself comes with the
roll call (`roll_call.py`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from flwr.serverapp import Grid

from fedstride.errors import ConfigError
from fedstride.flower import grids
from fedstride.flower.grids import ConnectedNode
from fedstride.messages.node_names import ChosenNodes, is_name

from ..config.schema import Config

MAX_LISTED = 10  # nodes that a message names


def check_nodes(grid: Grid, config: Config) -> None:
    """Wait until `min_clients` of the nodes that may take part are connected (default: all `clients`).

    Raises ConfigError for too few: immediately in a simulation, after `node_wait` seconds in a deployment. In a
    simulation also for too many; in a deployment, others may be there that are not needed.
    """
    chosen, has_others = ChosenNodes(config.nodes), grids.has_keys(grid)
    if config.nodes is not None and not has_others:
        raise ConfigError(
            f"nodes = {config.nodes!r} chooses among the nodes of a deployment; the clients of this run have no "
            "names: leave nodes out, or submit the run with fedstride submit"
        )
    deadline = time.monotonic() + (0.0 if grids.is_simulation(grid) else config.node_wait)
    while len(nodes := connected(grid, chosen)) < config.start_size and time.monotonic() < deadline:
        time.sleep(0.5)
    if len(nodes) < config.start_size or not (has_others or len(nodes) <= config.clients):
        raise ConfigError(
            f"clients = {config.clients}, but the federation has {len(nodes)} nodes"
            + (_too_few(grid, config, nodes) if has_others else _wrong_number(config, nodes))
        )


def connected(grid: Grid, chosen: ChosenNodes) -> list[ConnectedNode]:
    """The connected nodes that are chosen, and those that are registered without a name: they may state one."""
    return [node for node in grids.nodes(grid) if not is_name(node.name) or chosen.has(node.name)]


def _too_few(grid: Grid, config: Config, nodes: Sequence[ConnectedNode]) -> str:
    """What to add to the message about a deployment."""
    missing = ChosenNodes(config.nodes).missing([node.name for node in nodes])
    of = "" if config.nodes is None else f" of those chosen by nodes = {config.nodes!r}"
    absent = f": {listed(missing)} {'is' if len(missing) == 1 else 'are'} missing" if missing else ""
    then = f"start {config.start_size} SuperNodes, or set clients={max(len(nodes), 1)}"
    if config.nodes is not None:
        then = "start the missing nodes, choose others with nodes, or start with fewer with min_clients"
    online = listed([str(node) for node in grids.nodes(grid)])
    return f"{of} after {config.node_wait:g} seconds (node_wait){absent}; connected: {online or 'none'}; {then}"


def _wrong_number(config: Config, nodes: Sequence[ConnectedNode]) -> str:
    """What to add to the message about a simulation."""
    return (
        f"; in a simulation pass --federation-config "
        f'"num-supernodes={config.clients} client-resources-num-cpus=1" to flwr run, or set clients={len(nodes)}'
    )


def listed(names: Sequence[str]) -> str:
    """The names for a message, at most MAX_LISTED of them."""
    more = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {more} more" if more > 0 else "")
