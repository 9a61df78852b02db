"""What shows whether a set of examples is that of before, as digests of it."""

from __future__ import annotations

import hashlib

import numpy as np

from ..evaluation.holdout import KEY_BYTES

_PURPOSE = b"fedstride same data\0"


def digest_of_set(digests: np.ndarray) -> bytes:
    """The digest, 32 bytes, of examples with these digests, uint8 (n, a multiple of 8), in any order."""
    order = np.lexsort(digests.view("<u8").T)
    return hashlib.blake2b(digests[order].tobytes(), digest_size=KEY_BYTES).digest()


def keyed(content: bytes, key: bytes) -> bytes:
    """The digest as somebody with this key keeps it: without the key, no data can be tried against it."""
    return hashlib.blake2b(_PURPOSE + content, key=key, digest_size=KEY_BYTES).digest()
