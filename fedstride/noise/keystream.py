"""Random bits that only a secret repeats: the stream of the cipher ChaCha20 (RFC 8439).

Its key is made of the secret and of all that the bits are for, so that no two purposes share a bit.
"""

from __future__ import annotations

import hashlib
import secrets

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms

SECRET_BYTES = 32


def new_secret(seed: int | None = None) -> str:
    """256 random bits of the operating system as hexadecimal text; of a seed, bits that everybody can make."""
    if seed is None:
        return secrets.token_hex(SECRET_BYTES)
    return hashlib.sha256(f"fedstride seed {seed}".encode()).hexdigest()


def is_secret(text: object) -> bool:
    """Whether it is text of the form that `new_secret` returns."""
    return isinstance(text, str) and len(text) == 2 * SECRET_BYTES and not set(text) - set("0123456789abcdef")


class Keystream:
    """The words of one purpose in one round, in order.

    `secret`: of `new_secret`; raises ValueError for another one. `about`: a digest of all that is protected with
    these bits.
    """

    def __init__(self, secret: str, purpose: str, server_round: int, about: str) -> None:
        if not is_secret(secret):
            raise ValueError("the secret of a stream must have 64 hexadecimal digits")
        said = f"{purpose}|{server_round}|{about}".encode()
        key = bytes.fromhex(secret)
        self._key = hashlib.blake2b(said, key=key, digest_size=32, person=b"fedstride noise").digest()
        self._words, self._more = self._stream(0), self._stream(1)

    def words(self, count: int) -> np.ndarray:
        """The next words, uint64 (count,), uniform."""
        return np.frombuffer(self._words.update(bytes(8 * count)), "<u8")

    def more(self) -> int:
        """The next word of another stream, for the few draws whose first word does not decide."""
        return int.from_bytes(self._more.update(bytes(8)), "little")

    def _stream(self, number: int) -> CipherContext:
        nonce = bytes(8) + number.to_bytes(8, "little")  # the first part counts the blocks
        return Cipher(algorithms.ChaCha20(self._key, nonce), mode=None).encryptor()
