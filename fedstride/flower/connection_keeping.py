"""How long a ServerApp keeps a connection to its SuperLink that it does not use.

The SuperLink closes a connection that was idle for five seconds, and Flower's ServerApp keeps it for as long
(1.39 to 1.42). A request at that moment fails; with TLS, Flower takes the failure for a wrong certificate and
ends the run.
"""

from __future__ import annotations

from typing import Any

from flwr.serverapp import Grid

from .for_nodes.certificates import verified
from .grids import is_deployment

IDLE_SECONDS = 1.0
"""A connection that was idle for longer is not used again: well below the SuperLink's five seconds."""


def forget_idle_connections(grid: Grid) -> None:
    """From now on, requests of a deployment's Grid use no connection that was idle for more than IDLE_SECONDS.

    Other Grids have no connections; nothing is done then.
    """
    if not is_deployment(grid):
        return
    import httpx

    http: Any = grid
    client = http._runtime_client
    old = client._client
    client._client = httpx.Client(  # the old one is not closed: a heartbeat may be under way in it
        verify=False if http._insecure else verified(http._cert),
        timeout=old.timeout,
        follow_redirects=old.follow_redirects,
        limits=httpx.Limits(keepalive_expiry=IDLE_SECONDS),
    )
