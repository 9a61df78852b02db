"""Which SuperLink is meant: a connection of Flower's, or an address and the certificate to trust.

Knows Flower's config.toml; does not know what a SuperLink is asked.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import shlex
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from fedstride.errors import ConfigError, unknown

from .command import Connection, environment, write_connection

TEMPORARY = "fedstride"  # the name of a connection that was given as an address


@dataclass(frozen=True)
class Target:
    """Where a run is submitted: a connection's name, and the environment in which `flwr` knows it."""

    name: str
    address: str
    env: dict[str, str]
    connection: Connection | None = None  # where it was given as an address: nothing else knows it

    def commands(self, run_id: str) -> list[str]:
        """How a user goes on with a run that she no longer follows."""
        name = shlex.quote(self.name)
        first = [] if self.connection is None else _how_to_keep(self.connection)
        return [*first, f"follow it:  flwr log {run_id} {name}", f"stop it:    flwr stop {run_id} {name}"]


def flower_home() -> Path:
    """Where Flower keeps its connections."""
    return Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr").expanduser()


def named(name: str) -> Target:
    """The connection of this name in Flower's config.toml. Raises ConfigError, naming those there are."""
    path = flower_home() / "config.toml"
    try:
        known = tomllib.loads(path.read_text(encoding="utf-8")).get("superlink", {}) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    connections = {key: value for key, value in known.items() if isinstance(value, dict)}
    if name not in connections:
        raise ConfigError(
            f"{unknown('connection', name, connections or ['none'])} (in {path}); or give --address HOST:PORT"
        )
    address = str(connections[name].get("address", ""))
    if address.startswith(":"):
        raise ConfigError(
            f"connection {name!r} is Flower's simulation on this machine, no SuperLink: use fedstride simulate"
        )
    return Target(name, address, environment())


@contextlib.contextmanager
def at_address(address: str, root_certificates: Path | None) -> Iterator[Target]:
    """A connection that needs no config.toml; in plain text where no certificate is given."""
    if not _is_host_and_port(address):
        raise ConfigError(
            f"--address {address!r} is not allowed: HOST:PORT is, as in superlink:8000 or [::1]:8000"
        )
    if root_certificates is not None and not root_certificates.is_file():
        raise ConfigError(
            f"--root-certificates {root_certificates} does not exist: name the CA's certificate, ca.crt"
        )
    trusted = None if root_certificates is None else root_certificates.expanduser().resolve()
    connection = Connection(TEMPORARY, address, trusted)
    with tempfile.TemporaryDirectory(prefix="fedstride-") as folder:
        write_connection(Path(folder), connection)
        yield Target(TEMPORARY, address, environment(Path(folder)), connection)


def _is_host_and_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        return False
    if host.startswith("["):
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(host.strip("[]")).version == 6
        return False
    return re.fullmatch(r"[A-Za-z0-9._-]+", host) is not None


def _how_to_keep(connection: Connection) -> list[str]:
    lines = ["    " + line for line in connection.toml().splitlines()]
    return [f"first put this into {flower_home() / 'config.toml'}:", *lines]
