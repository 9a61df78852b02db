"""How a node identifies itself in each request to a SuperLink: a signed time (Flower 1.39 to 1.42)."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from importlib.metadata import version
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

OTHER_CLOCK = "Invalid timestamp"
"""Flower's words for a signed time that is too far from the SuperLink's (1.39 to 1.42)."""

CLOCKS = "the clocks of this node and of the SuperLink differ by more than 5 seconds: set them"

OLDEST_SECONDS, FUTURE_SECONDS = 305.0, 5.0
"""How far a signed time may be from that of the SuperLink, which is Flower's choice (1.39 to 1.42)."""

_CODE = re.compile(r'"code":\s*\d+')


def of_flower(text: str) -> bool:
    """Whether an error has one of Flower's codes, and so comes from the SuperLink and not from a proxy."""
    return _CODE.search(text) is not None


class RequestSignature(NamedTuple):
    """What identifies the node in a request."""

    public_key: bytes  # PEM
    time: str  # ISO 8601
    signature: bytes  # of the time
    versions: tuple[tuple[str, str], ...]  # headers that name this Flower


class Keys:
    """A node's key pair: that of the file, or one made for this process."""

    def __init__(self, private: ec.EllipticCurvePrivateKey | None = None) -> None:
        self.registers = private is None  # a node without a registered key registers itself
        self._private = private or ec.generate_private_key(ec.SECP384R1())
        self.public = self._private.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        named = ("package-name", "flwr"), ("package-version", version("flwr")), ("component-name", "SuperNode")
        self._versions = tuple((f"flwr-{name}", value) for name, value in named)

    def signed(self) -> RequestSignature:
        """The identity for a request that is sent now."""
        moment = datetime.now(UTC).isoformat()
        signature = self._private.sign(moment.encode("ascii"), ec.ECDSA(hashes.SHA256()))
        return RequestSignature(self.public, moment, signature, self._versions)


def fault(public_key: bytes, moment: str, signature: bytes, now: datetime) -> str:
    """What is wrong with the identity in a request; empty if the key has signed this time, and it is now."""
    try:
        key = serialization.load_pem_public_key(public_key)
        if not isinstance(key, ec.EllipticCurvePublicKey):
            return "not a key of an elliptic curve"
        key.verify(signature, moment.encode("ascii"), ec.ECDSA(hashes.SHA256()))
        age = (now - datetime.fromisoformat(moment)).total_seconds()
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return "Invalid signature"
    return "" if -FUTURE_SECONDS < age < OLDEST_SECONDS else OTHER_CLOCK


def openssh_to_pem(content: bytes) -> bytes:
    """A public key of OpenSSH's form in the form that requests have. Raises ValueError for another key."""
    key = serialization.load_ssh_public_key(content)
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise ValueError("not a key of an elliptic curve")
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
