"""Registers the public keys of nodes with a SuperLink, by `flwr supernode register`."""

from __future__ import annotations

from pathlib import Path

from fedstride.errors import ConfigError, RunError

from .command import ask
from .reach import explained
from .target import Target

REGISTERED = "[code: 23]"  # Flower 1.39 to 1.42: this key has been registered before


def public_keys(given: list[Path]) -> list[Path]:
    """The given files. Raises ConfigError if there are none, a file is no public key, or two have one name."""
    if not given:
        raise ConfigError("name the public keys to register, as in certs/node1.pub certs/node2.pub")
    for path in given:
        if not path.is_file():
            raise ConfigError(f"{path} does not exist: name a node's public key, as in certs/node1.pub")
        if path.read_bytes()[:11] != b"ecdsa-sha2-":
            raise ConfigError(
                f"{path} is not the public key of a node: name its .pub file, made by fedstride certificates"
            )
    by_name: dict[str, Path] = {}
    for path in given:
        if by_name.setdefault(path.stem, path) != path:
            raise ConfigError(
                f"{by_name[path.stem]} and {path} would both be registered as {path.stem!r}; a file's name is the "
                "node's name: rename one of them"
            )
    return given


def register(target: Target, key: Path) -> str | None:
    """Register this public key, so that its node may join; the node id, or None if it was registered before.

    Raises RunError if the SuperLink does not accept the key.
    """
    command = ["flwr", "supernode", "register", str(key), target.name, "--name", key.stem]
    try:
        return str(ask(command, target.env)["node-id"])
    except RunError as error:
        if REGISTERED in str(error):
            return None
        raise RunError(f"{key} was not registered at {target.address}: {explained(error, target)}") from error
