"""Selects a SuperLink: by a connection in Flower's config.toml, or by an address and the CA's certificate."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import shlex
import tomllib
from dataclasses import dataclass
from pathlib import Path

from fedstride.errors import ConfigError, unknown
from fedstride.files import user_folders
from fedstride.processes.ports import SUBMITTING
from superlink import token


@dataclass(frozen=True)
class ChosenSuperLink:
    """A SuperLink: its address, and how it is reached."""

    name: str  # of a connection; empty if given by --address
    address: str
    insecure: bool = False  # in plain text
    root_certificates: Path | None = None  # the CA to trust; with TLS and None, those of this machine
    federation: str = ""  # of Flower's accounts

    def headers(self) -> dict[str, str]:
        """What a request must have: the submit token, if there is one for this SuperLink. Raises ConfigError."""
        submit_token = token.found(self.address, self.insecure)
        return {} if submit_token is None else {token.HEADER.decode(): submit_token}

    def commands(self, run_id: str) -> list[str]:
        """Lines for the user who no longer follows a run: how to follow or stop it."""
        name = shlex.quote(self.name)
        if not self.name:
            trusted = self.root_certificates
            trust = "--insecure" if trusted is None else f"--root-certificates {shlex.quote(str(trusted))}"
            name = f"--address {shlex.quote(self.address)} {trust}"
        verbs = {"follow it": "logs --follow", "stop it": "stop", "fetch it": "fetch"}
        return [f"{what + ':':<11} fedstride {verb} {run_id} {name}" for what, verb in verbs.items()]


def named(name: str) -> ChosenSuperLink:
    """The connection of this name in Flower's config.toml. Raises ConfigError, which lists the known names."""
    path, connections = _connections()
    if name not in connections:
        raise ConfigError(
            f"{unknown('connection', name, connections or ['none'])} (in {path}); or use --address HOST:PORT"
        )
    address = str(connections[name].get("address", ""))
    if address.startswith(":"):
        raise ConfigError(
            f"connection {name!r} is Flower's simulation on this machine, not a SuperLink: use fedstride simulate"
        )
    trusted = connections[name].get("root-certificates")
    return ChosenSuperLink(
        name,
        address,
        insecure=connections[name].get("insecure") is True,
        root_certificates=None if trusted is None else Path(str(trusted)).expanduser(),
        federation=str(connections[name].get("federation", "")),
    )


def deployed() -> list[str]:
    """The names of all connections in Flower's config.toml, except Flower's simulation on this machine."""
    return [key for key, value in _connections()[1].items() if not str(value.get("address", ":")).startswith(":")]


def _connections() -> tuple[Path, dict[str, dict[str, object]]]:
    path = user_folders.flower() / "config.toml"
    try:
        known = tomllib.loads(path.read_text(encoding="utf-8")).get("superlink", {}) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    return path, {key: value for key, value in known.items() if isinstance(value, dict)}


def at_address(address: str, root_certificates: Path | None) -> ChosenSuperLink:
    """A connection without an entry in the user's config.toml; in plain text if no certificate is given."""
    if not _is_host_and_port(address):
        raise ConfigError(
            f"--address {address!r} is not allowed: it must be HOST:PORT, as in superlink:{SUBMITTING} or "
            f"[::1]:{SUBMITTING}"
        )
    if root_certificates is not None and not root_certificates.is_file():
        raise ConfigError(
            f"--root-certificates {root_certificates} does not exist: name the CA's certificate, ca.crt"
        )
    trusted = None if root_certificates is None else root_certificates.expanduser().resolve()
    return ChosenSuperLink("", address, trusted is None, trusted)


def _is_host_and_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        return False
    if host.startswith("["):
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(host.strip("[]")).version == 6
        return False
    return re.fullmatch(r"[A-Za-z0-9._-]+", host) is not None
