"""Signatures of apps: their form, and how they are made and read.

A signature is Flower's own (1.39 to 1.42): Ed25519 over eight bytes with the time, big-endian, and the bundle's
SHA-256. It travels as one line of JSON in a run's configuration, since Flower carries signatures of its app store
only.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import ConfigError

FORMAT = "fedstride-signature-1"
RUN_CONFIG = "signature"
"""The key of a run's configuration that has the signature."""

MOST_CHARACTERS = 1000
_HASH, _KEY = re.compile(r"[0-9a-f]{64}"), re.compile(r"fpk_[0-9a-f]{32}")
_SIGNATURE = re.compile(r"[A-Za-z0-9_-]{86}==")


@dataclass(frozen=True)
class Signature:
    """Who signed which app, and when."""

    app: str  # SHA-256 of the bundle
    key: str  # the id of the public key, see `key_id`
    signed_at: int  # seconds since 1970
    signature: str  # base64 (URL-safe) of 64 bytes

    def dump(self) -> str:
        """The signature as one line."""
        return json.dumps({"format": FORMAT, **asdict(self)})


def load(text: str) -> Signature:
    """The signature in this text. Raises ConfigError if it is none, whatever the text is."""
    try:
        values: Any = json.loads(text) if len(text) <= MOST_CHARACTERS else None
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise ConfigError(f"it is not a signature of the format {FORMAT}; make one with fedstride sign app")
    try:
        signature = Signature(**values)
        valid = (
            _HASH.fullmatch(signature.app)
            and _KEY.fullmatch(signature.key)
            and _SIGNATURE.fullmatch(signature.signature)
            and type(signature.signed_at) is int
            and 0 <= signature.signed_at < 2**63
        )
    except TypeError:
        valid = None
    if not valid:
        raise ConfigError(
            "it is not a signature: a value is missing or of another form; make one with fedstride sign app"
        )
    return signature


def key_id(public: bytes) -> str:
    """The id of a public key, of its 32 bytes."""
    return f"fpk_{hashlib.sha256(public).hexdigest()[:32]}"


def signed_bytes(bundle_hash: bytes, signed_at: int) -> bytes:
    """What is signed."""
    return signed_at.to_bytes(8, "big") + bundle_hash


def encode(signature: bytes) -> str:
    """The 64 bytes of a signature as text."""
    return base64.urlsafe_b64encode(signature).decode()


def decode(text: str) -> bytes:
    """The 64 bytes of a signature from text. Raises ValueError if it is none."""
    return base64.urlsafe_b64decode(text.encode("ascii"))
