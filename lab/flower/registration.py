"""Registers the public keys of nodes with a SuperLink."""

from __future__ import annotations

from pathlib import Path

from fedstride.errors import ConfigError
from fedstride.flower.for_nodes.request_keys import openssh_to_pem

from .superlink_choice import ChosenSuperLink
from .superlink_requests import control


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


def register(target: ChosenSuperLink, key: Path) -> str | None:
    """Register this public key, so that its node may join; the node id, or None if it was registered before.

    Raises RunError if the SuperLink does not accept the key.
    """
    try:
        content = openssh_to_pem(key.read_bytes())
    except ValueError as error:
        raise ConfigError(f"{key} is not the public key of a node ({error}): name its .pub file") from error
    with control(target) as connection:
        return connection.register(content, key.stem)
