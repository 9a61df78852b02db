"""Fingerprints of public keys of nodes, as `ssh-keygen -l` writes them, and files that list such keys."""

from __future__ import annotations

import base64
import binascii
from hashlib import sha256
from pathlib import Path

from ..errors import ConfigError

KIND = "ecdsa-sha2-"
"""How the public key of a node begins, in the form of OpenSSH."""


def fingerprint(line: str) -> str:
    """The fingerprint of a public key in the form of OpenSSH. Raises ValueError for another text."""
    kind, _, rest = line.strip().partition(" ")
    if not kind.startswith(KIND) or not rest:
        raise ValueError("it is not the public key of a node")
    try:
        content = base64.b64decode(rest.split()[0], validate=True)
    except binascii.Error:
        raise ValueError("it is not a public key of OpenSSH's form") from None
    return "SHA256:" + base64.b64encode(sha256(content).digest()).decode().rstrip("=")


def fingerprints(path: Path, what: str) -> tuple[str, ...]:
    """The fingerprints of the keys in a file, one key a line. `what`: what names the file, for errors.

    Raises ConfigError if it cannot be read, has another line, or no key.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text"
        raise ConfigError(f"{what} {path} cannot be read: {reason}") from error
    prints = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.startswith("#"):
            try:
                prints.append(fingerprint(line))
            except ValueError as error:
                raise ConfigError(
                    f"{what} {path}, line {number}: {error}; each line is the .pub file of a node, as fedstride "
                    "certificates makes it"
                ) from None
    if not prints:
        raise ConfigError(f"{what} {path} has no key; join the .pub files of the nodes: cat certs/node*.pub")
    return tuple(sorted(set(prints)))
