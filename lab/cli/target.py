"""The options that select a SuperLink, shared by `fedstride submit` and `fedstride register`."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..flower.target import Target

CONNECTION = typer.Argument(help="A connection in Flower's config.toml; or use --address.", show_default=False)
ADDRESS = typer.Option(help="HOST:PORT of the SuperLink, instead of a connection.", show_default=False)
ROOT_CERTIFICATES = typer.Option(help="With --address: the CA's certificate, ca.crt.", show_default=False)
INSECURE = typer.Option("--insecure", help="With --address: without TLS.")


def after_connection(connection: str | None, rest: list[str] | None, address: str | None) -> list[str]:
    """The arguments after the connection. With --address there is no connection: all arguments."""
    first = [] if address is None or connection is None else [connection]
    return [*first, *(rest or [])]


def select(
    stack: contextlib.ExitStack,
    command: str,
    connection: str | None,
    address: str | None,
    root_certificates: Path | None,
    insecure: bool,
) -> Target:
    """The SuperLink that a command's options select; a temporary connection exists as long as `stack`.

    Raises ConfigError if they select no SuperLink or two.
    """
    from fedstride.errors import ConfigError

    from ..flower.target import at_address, named

    if address is None:
        if root_certificates is not None or insecure:
            raise ConfigError("--root-certificates and --insecure are only allowed with --address HOST:PORT")
        if connection is None or "=" in connection:
            raise ConfigError(
                f"name a connection first, as in fedstride {command} CONNECTION ..., or use --address HOST:PORT"
            )
        return named(connection)
    if (root_certificates is None) != insecure:
        raise ConfigError(
            "--address needs --root-certificates ca.crt, or --insecure "
            "for a SuperLink without TLS: exactly one of them"
        )
    return stack.enter_context(at_address(address, root_certificates))
