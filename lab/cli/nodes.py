"""`fedstride nodes`: lists the nodes that are registered with a SuperLink, and revokes one's right to join."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import block, line
from .target import ADDRESS, CONNECTION, INSECURE, ROOT_CERTIFICATES, select


def nodes(
    connection: Annotated[str | None, CONNECTION] = None,
    unregister: Annotated[
        int | None, typer.Option(help="The id of a node that may not join any more.", show_default=False)
    ] = None,
    address: Annotated[str | None, ADDRESS] = None,
    root_certificates: Annotated[Path | None, ROOT_CERTIFICATES] = None,
    insecure: Annotated[bool, INSECURE] = False,
) -> None:
    """List the registered nodes of a SuperLink: id, name, whether it is online, since when it is registered.

    CONNECTION is a connection in Flower's config.toml; use --address instead for a SuperLink that is not in
    it.
    """
    from ..flower.superlink_requests import control
    from ..results.formats import Grid, text

    with control(select("nodes", connection, address, root_certificates, insecure)) as connected:
        if unregister is not None:
            connected.unregister(unregister)
            line(f"node {unregister} is unregistered; register a new key of it with fedstride register")
            return
        known_nodes = connected.nodes()
    rows = [[str(node.id), node.name, node.status, node.registered] for node in known_nodes]
    block(text(Grid(f"{len(rows)} nodes", ["node", "name", "status", "registered"], rows, words=4), None))
