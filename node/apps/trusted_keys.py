"""The keys whose apps a node runs: the file of `--trusted-entities`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_ssh_public_key

from fedstride.errors import ConfigError

NEXT = "fedstride sign key writes such a file"


def trusted_keys(path: Path) -> Mapping[str, str]:
    """The keys in this file by their ids, in the form of OpenSSH.

    Raises ConfigError if it cannot be read, or is not a YAML mapping from ids to Ed25519 keys with at least one: a
    node without a key would run every app.
    """
    keys = _read(path)
    if not isinstance(keys, dict):
        raise ConfigError(f"--trusted-entities {path}: it is not a list of trusted keys in YAML; {NEXT}")
    if not keys:
        raise ConfigError(
            f"--trusted-entities {path}: it names no key, and a node without trusted keys runs every app; {NEXT}"
        )
    for name, text in keys.items():
        if not isinstance(name, str) or not isinstance(text, str) or public_key(text) is None:
            raise ConfigError(
                f"--trusted-entities {path}: the entry {str(name)[:60]!r} is not an id with an Ed25519 key in the "
                f"form of OpenSSH; {NEXT}"
            )
    return keys


def public_key(text: str) -> Ed25519PublicKey | None:
    """The key in the form of OpenSSH; None if it is none."""
    try:
        key = load_ssh_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, Ed25519PublicKey) else None


def _read(path: Path) -> Any:
    import yaml

    try:
        return yaml.safe_load(path.expanduser().read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, RecursionError, yaml.YAMLError) as error:
        reason = " ".join(str(getattr(error, "strerror", None) or error).split())
        raise ConfigError(f"--trusted-entities {path} cannot be read: {reason}; {NEXT}") from error
