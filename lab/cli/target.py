"""The options that select a SuperLink, shared by `fedstride submit` and `fedstride register`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from ..flower.superlink_choice import ChosenSuperLink

CONNECTION = typer.Argument(help="A connection in Flower's config.toml; or use --address.", show_default=False)
ADDRESS = typer.Option(help="HOST:PORT of the SuperLink, instead of a connection.", show_default=False)
ROOT_CERTIFICATES = typer.Option(help="With --address: the CA's certificate, ca.crt.", show_default=False)
INSECURE = typer.Option("--insecure", help="With --address: without TLS.")


def after_connection(connection: str | None, rest: list[str] | None, address: str | None) -> list[str]:
    """The arguments after the connection. With --address there is no connection: all arguments."""
    first = [] if address is None or connection is None else [connection]
    return [*first, *(rest or [])]


def select(
    command: str,
    connection: str | None,
    address: str | None,
    root_certificates: Path | None,
    insecure: bool,
) -> ChosenSuperLink:
    """The SuperLink that a command's options select.

    Raises ConfigError if they select no SuperLink or two.
    """
    from fedstride.errors import ConfigError

    from ..flower.superlink_choice import at_address, named

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
    return at_address(address, root_certificates)


RUN = typer.Argument(help="A run folder, its name in the folder of runs, or the id of a deployed run.")
CONNECTION_OF_A_RUN = typer.Argument(
    help="For a run id: a connection in Flower's config.toml; not needed if there is one only.", show_default=False
)


def folder_of(run: str) -> Path | None:
    """The folder of a run on this machine: by its path, or by its name in the folder of runs; None if none."""
    from server_app.config.schema import Config
    from server_app.records.run_folder import runs_dir

    from ..results.run_folders import is_run

    given = Path(os.path.expanduser(run))  # which leaves the home of an unknown user as it is
    return next((place.resolve() for place in (given, runs_dir(Config()) / given) if is_run(place)), None)


def superlink_of(
    command: str,
    run: str,
    connection: str | None,
    address: str | None,
    root_certificates: Path | None,
    insecure: bool,
) -> ChosenSuperLink:
    """The SuperLink of a run id: as selected, or the only connection of this user.

    Raises ConfigError if `run` is no run id, or if it is open which SuperLink is meant.
    """
    from fedstride.errors import ConfigError

    from ..flower.superlink_choice import deployed

    if not run.isdecimal():
        raise ConfigError(f"{run[:80]!r} is neither a run folder nor a run id: fedstride runs lists both")
    if connection is None and address is None:
        known = deployed()
        if len(known) != 1:
            names = f": {', '.join(known)}" if known else "; there is none in Flower's config.toml"
            raise ConfigError(f"name the connection, as in fedstride {command} {run} CONNECTION{names}")
        connection = known[0]
    return select(command, connection, address, root_certificates, insecure)
