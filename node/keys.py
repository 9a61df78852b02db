"""A node's key pair, which also signs the lines of its log: how files of keys are read, and what is signed."""

from __future__ import annotations

import base64
import contextlib
import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePrivateKey, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
    load_ssh_private_key,
    load_ssh_public_key,
)

from fedstride.errors import ConfigError

_DOMAIN = "fedstride line of a node's log "
"""What is signed begins with these words, so that it is nothing else that the key signs, as times of requests."""


def private_key(content: bytes) -> EllipticCurvePrivateKey | None:
    """The private key of an elliptic curve in a file, in OpenSSH's form or PEM, without a password; else None."""
    load = load_ssh_private_key if b"OPENSSH" in content else load_pem_private_key
    try:
        key = load(content, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        return None
    return key if isinstance(key, EllipticCurvePrivateKey) else None


def public_key(path: Path) -> PublicKey:
    """The public key of a file with it, or with its private key. Raises ConfigError for another file."""
    try:
        content = path.expanduser().read_bytes()
    except OSError as error:
        raise ConfigError(f"--key {path} cannot be read: {error.strerror or error}") from error
    key: object = None
    if b"PRIVATE KEY" in content:
        private = private_key(content)
        key = None if private is None else private.public_key()
    else:
        load = load_pem_public_key if b"BEGIN" in content else load_ssh_public_key
        with contextlib.suppress(ValueError, TypeError, UnsupportedAlgorithm):
            key = load(content)
    if not isinstance(key, EllipticCurvePublicKey):
        raise ConfigError(f"--key {path} is not the key of a node: give the .pub that fedstride certificates made")
    return PublicKey(key)


@dataclass(frozen=True)
class PublicKey:
    """What verifies the lines of a node's log."""

    key: EllipticCurvePublicKey

    @functools.cached_property
    def id(self) -> str:
        """The first 64 bits of the SHA-256 of the key."""
        content = self.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        return hashlib.sha256(content).hexdigest()[:16]

    def has_signed(self, digest: str, signature: str) -> bool:
        """Whether this is the signature of a line with this digest."""
        try:
            self.key.verify(base64.b64decode(signature, validate=True), _signed(digest), ECDSA(SHA256()))
        except (ValueError, InvalidSignature):
            return False
        return True


class Signer:
    """Signs the lines of a node's log with the node's key."""

    def __init__(self, private: EllipticCurvePrivateKey) -> None:
        self._private = private
        self.public = PublicKey(private.public_key())

    def sign(self, digest: str) -> str:
        """The signature of a line with this digest."""
        return base64.b64encode(self._private.sign(_signed(digest), ECDSA(SHA256()))).decode()


def _signed(digest: str) -> bytes:
    return f"{_DOMAIN}{digest}".encode()
