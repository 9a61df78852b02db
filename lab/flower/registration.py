"""Nodes' public keys at a SuperLink: which may join.

Knows the command `flwr supernode register`; does not know how keys are made (`lab/deployment/certificates.py`).
"""

from __future__ import annotations

from pathlib import Path

from fedstride.errors import ConfigError, RunError

from .command import ask
from .target import Target

KNOWN = "[code: 23]"  # Flower 1.39: this key has been registered before


def public_keys(given: list[Path]) -> list[Path]:
    """The files of public keys that were named. Raises ConfigError for one that cannot be one."""
    if not given:
        raise ConfigError("name the public keys to register, as in certs/node1.pub certs/node2.pub")
    for path in given:
        if not path.is_file():
            raise ConfigError(f"{path} does not exist: name a node's public key, as in certs/node1.pub")
        if path.read_bytes()[:11] != b"ecdsa-sha2-":
            raise ConfigError(f"{path} is no public key of a node: name its .pub file, made by certificates")
    return given


def register(target: Target, key: Path) -> str | None:
    """Let the node of this public key join; its node id, or None where the key is known already.

    Raises RunError where the SuperLink does not take it.
    """
    command = ["flwr", "supernode", "register", str(key), target.name, "--name", key.stem]
    try:
        return str(ask(command, target.env)["node-id"])
    except RunError as error:
        if KNOWN in str(error):
            return None
        raise RunError(f"{key} was not registered at {target.address}: {error}") from error
