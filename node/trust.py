"""The keys whose apps a SuperNode runs: a check of the file before Flower reads it. Knows nothing of Flower.

Flower's SuperNode (1.39) runs every app if the list is empty, and ends with a traceback if an entry is not a key.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from fedstride.errors import ConfigError

NEXT = "fedstride sign key writes such a file"


def check_trusted(arguments: Sequence[str]) -> None:
    """Check the file of `--trusted-entities` in these arguments of a SuperNode, if it is given.

    Raises ConfigError if it cannot be read, or is not a YAML mapping from ids to Ed25519 keys with at least one.
    """
    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    parser.add_argument("--trusted-entities", type=Path)
    try:
        path = parser.parse_known_args(list(arguments))[0].trusted_entities
    except argparse.ArgumentError:  # Flower's parser says what is wrong
        return
    if path is not None:
        _check(path)


def _check(path: Path) -> None:
    found = _read(path)
    if not isinstance(found, dict):
        raise ConfigError(f"--trusted-entities {path}: it is not a list of trusted keys in YAML; {NEXT}")
    if not found:
        raise ConfigError(
            f"--trusted-entities {path}: it names no key, and a node without trusted keys runs every app; {NEXT}"
        )
    for name, text in found.items():
        try:
            key = load_ssh_public_key(str(text).encode())
        except (ValueError, UnsupportedAlgorithm):
            key = None
        if not isinstance(name, str) or not isinstance(text, str) or not isinstance(key, Ed25519PublicKey):
            raise ConfigError(
                f"--trusted-entities {path}: the entry {str(name)[:60]!r} is not an id with an Ed25519 key in the "
                f"form of OpenSSH; {NEXT}"
            )


def _read(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(path.expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise ConfigError(f"--trusted-entities {path} cannot be read: {reason}; {NEXT}") from error
