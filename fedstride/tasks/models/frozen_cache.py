"""Keeps frozen arrays in this machine's cache, under the digest of their content.

Whoever finds an entry has exactly the arrays that the digest names."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from ...arrays.dtypes import TWO_BYTES, bfloat16
from ...arrays.named import Arrays, plain_bytes
from ...errors import DataError
from ..cache import cache_dir, cached, discard

KIND = "frozen"


def digest_of(arrays: Mapping[str, Any]) -> str:
    """SHA-256 of names, dtypes, shapes and bytes, in the order given; 64 hexadecimal digits."""
    digest = hashlib.sha256()
    for name, array in arrays.items():
        kept = np.asarray(array, order="C")
        digest.update(f"{len(name)} {name} {kept.dtype.str} {kept.shape}".encode())
        digest.update(plain_bytes(kept) if kept.size else b"")
    return digest.hexdigest()


def keep(arrays: Mapping[str, Any]) -> bool:
    """Write the arrays to the cache, if they are not there. False if that is not possible."""
    key = {"digest": digest_of(arrays)}
    # By position, because a parameter's name need not be a file's name.
    files = {f"{i:06d}": np.asarray(array) for i, array in enumerate(arrays.values())}
    try:
        cached(KIND, key, lambda: files)
    except (DataError, OSError, ValueError):  # not writable, or an entry that cannot be read
        return False
    return True


def kept(digest: str, names: Sequence[str]) -> Arrays | None:
    """The arrays with this digest, read-only and memory-mapped; None if the cache does not have them.

    A damaged entry is deleted.
    """
    try:
        return _verified(digest, tuple(names), str(cache_dir()))
    except LookupError:
        return None


@lru_cache(maxsize=2)
def _verified(digest: str, names: tuple[str, ...], folder: str) -> Arrays:
    """The arrays of an entry in the cache folder, read and verified once in a process. Raises LookupError."""
    key = {"digest": digest}
    try:
        entry = cached(KIND, key, _missing)
        arrays = dict(zip(names, (_typed(entry[position]) for position in sorted(entry)), strict=True))
    except (LookupError, DataError, OSError, ValueError, EOFError):
        arrays = {}
    if digest_of(arrays) != digest:
        discard(KIND, key)
        raise LookupError(digest)
    return arrays


def _typed(array: np.ndarray) -> np.ndarray:
    """The array with the dtype that it was kept with, which a `.npy` file does not name if it is bfloat16."""
    return array.view(bfloat16()) if array.dtype == TWO_BYTES else array


def _missing() -> Mapping[str, np.ndarray]:
    raise LookupError
