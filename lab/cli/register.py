"""`fedstride register`: registers the public keys of nodes with a SuperLink."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..terminal import line
from .target import ADDRESS, CONNECTION, INSECURE, ROOT_CERTIFICATES, after_connection, select


def register(
    connection: Annotated[str | None, CONNECTION] = None,
    keys: Annotated[
        list[str] | None, typer.Argument(help="Public keys, as in certs/node1.pub.", show_default=False)
    ] = None,
    address: Annotated[str | None, ADDRESS] = None,
    root_certificates: Annotated[Path | None, ROOT_CERTIFICATES] = None,
    insecure: Annotated[bool, INSECURE] = False,
) -> None:
    """Register public keys with a SuperLink, so that their nodes may join; registered keys stay unchanged.

    CONNECTION is a connection in Flower's config.toml; use --address instead for a SuperLink that is not in
    it. KEYS are the files of the public keys, as in certs/node1.pub.
    """
    from ..flower.registration import public_keys
    from ..flower.registration import register as register_key

    files = after_connection(connection, keys, address)
    target = select("register", connection, address, root_certificates, insecure)
    for key in public_keys([Path(text).expanduser() for text in files]):
        node = register_key(target, key)
        line(f"{key.stem}: already registered" if node is None else f"{key.stem}: registered, node {node}")
