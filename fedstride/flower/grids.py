"""Which Grid of Flower this is, and what it knows of its nodes and of the end of its run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from flwr.serverapp import Grid

from ..messages.node_names import is_name


def is_simulation(grid: object) -> bool:
    """Whether this is the Grid of a Flower simulation, in which all nodes exist from the start (1.39 to 1.42)."""
    return type(grid).__name__ == "InMemoryGrid"


def is_deployment(grid: object) -> bool:
    """Whether this is the Grid of a deployment, behind which is a SuperLink (1.39 to 1.42)."""
    return type(grid).__name__ == "HttpGrid"


TOKEN_REFUSED = (401, 403)
"""The HTTP status of the SuperLink's answer to a request of a run that has ended (1.39 to 1.42)."""


def no_longer_runs(error: BaseException) -> bool:
    """Whether this is Flower's error for a request of a run that was stopped meanwhile (1.39 to 1.42).

    The SuperLink then refuses the run's token. The first thread that notices it sends SIGINT to its process; what
    another thread asks before the signal arrives fails with the bare HTTP status.
    """
    if type(error).__name__ == "RunNotRunningException":
        return True
    status = getattr(getattr(error, "response", None), "status_code", None)
    return type(error).__name__ == "HTTPStatusError" and status in TOKEN_REFUSED


class ConnectedNode(NamedTuple):
    """What the SuperLink knows of a connected node. Nothing of it is a statement of the node itself."""

    id: int  # drawn by the SuperLink for each key
    key: str  # 32 hexadecimal digits of its public key's SHA-256; the node id where nodes have no keys
    name: str = ""  # with which its key was registered
    registered: str = ""  # when its key was registered, as in ISO 8601
    connected: str = ""  # since when it is connected, as in ISO 8601
    site: str = ""  # at a desk: what its user calls these data

    def __str__(self) -> str:
        """The name of its data at a desk, or with which its key was registered; else its id."""
        if self.site:
            return self.site
        if not self.name:
            return f"node {self.id}"
        return self.name if is_name(self.name) else f"node {self.id} ({self.name[:100]!r})"


def has_keys(grid: Grid) -> bool:
    """Whether the nodes of this Grid have keys that last longer than the run: those of a deployment.

    In a simulation, the keys are random (1.39 to 1.42). Other Grids inherit `get_nodes`, which knows the node ids
    only.
    """
    return type(grid).get_nodes is not Grid.get_nodes and not is_simulation(grid)


def repeats(grid: Grid) -> bool:
    """Whether a run with this Grid would say of its clients what another one beside it says."""
    return bool(getattr(grid, "repeats", False))


def nodes(grid: Grid) -> list[ConnectedNode]:
    """The connected nodes, in the order in which their keys were registered (1.39 to 1.42)."""
    if type(grid).get_nodes is Grid.get_nodes:  # which makes an object for each id, in each round
        sites: Mapping[int, str] = getattr(grid, "sites", {})
        return [_without_key(node, sites.get(node, "")) for node in sorted(grid.get_node_ids())]
    keyed = has_keys(grid)
    connected = []
    for info in grid.get_nodes():
        key = hashlib.sha256(info.public_key).hexdigest()[:32] if keyed and info.public_key else str(info.node_id)
        connected.append(ConnectedNode(info.node_id, key, info.name, info.registered_at, info.last_activated_at))
    return sorted(connected, key=lambda node: (node.registered, node.id))


@lru_cache(maxsize=100_000)
def _without_key(node: int, site: str) -> ConnectedNode:
    return ConnectedNode(node, str(node), site=site)
