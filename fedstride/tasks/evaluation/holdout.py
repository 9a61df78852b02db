"""The examples of a client that training never sees; federated evaluation measures on them.

An example is held out if its draw is below the share:

    draw = BLAKE2b(key; digest of the example) in [0, 2^64)        held out: draw < share 2^64

Fold k holds out k share <= draw / 2^64 < (k + 1) share instead, so several runs hold out each example once.
So it depends on nothing but the example and the key: no example changes sides when others are added, examples of
one digest stay together, and what a smaller share holds out, a larger one holds out too. The key is a site's own
secret (`site.py`), or comes from `split_seed`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np

from ...errors import DataError

DIGEST_BYTES = 16
KEY_BYTES = 32

_PURPOSE = b"fedstride hold-out\0"


def key_of(split_seed: int) -> bytes:
    """The key of everybody who gives this seed."""
    return hashlib.sha256(_PURPOSE + str(split_seed).encode()).digest()


def digest_of(content: bytes) -> bytes:
    """The digest of an example that has this content."""
    return hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()


def stacked(digests: Iterable[bytes]) -> np.ndarray:
    """Digests as an array, uint8 (n, 16)."""
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, DIGEST_BYTES)


def digests_of(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The digests of examples that are in arrays (n, ...) only, uint8 (n, 16)."""
    return stacked(
        digest_of(np.ascontiguousarray(x[i]).tobytes() + np.ascontiguousarray(y[i]).tobytes())
        for i in range(len(y))
    )


def draws_of(digests: np.ndarray, key: bytes) -> np.ndarray:
    """The draw of each example, uint64 (n,). Equal digests have equal draws."""
    rows = np.ascontiguousarray(digests).tobytes()
    draws = b"".join(
        hashlib.blake2b(rows[start : start + DIGEST_BYTES], key=key, digest_size=8).digest()
        for start in range(0, len(rows), DIGEST_BYTES)
    )
    return np.frombuffer(draws, "<u8").astype(np.uint64)


def folds_of(share: float) -> int:
    """How many folds a share has: as often as it goes into 1."""
    return int(1.0 / share + 1e-9) if share > 0.0 else 1


def held_key(share: float, fold: int) -> str:
    """What the examples of a fold are called where a node counts them."""
    return f"{float(share)!r}/{fold}" if fold else repr(float(share))


def hold_out(draws: np.ndarray, share: float, client: int, fold: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(training, held out): positions among a client's examples with these draws, each in rising order.

    `share` is in [0, 1). Above 0, at least one example is held out and at least one is kept: if no draw is below
    the share, the examples with the smallest one are held out; if all are, those with the largest are kept.
    `fold`: below `folds_of(share)`; fold k holds out draws from k share to (k + 1) share, in units of 2^64. Raises
    DataError if all examples have one draw, or if another fold than the first has no examples, or all.
    """
    if share == 0.0:
        return np.arange(len(draws)), np.arange(0)
    if len(draws) == 0 or draws.min() == draws.max():
        raise DataError(
            f"client {client} has {len(draws)} examples, and no two different ones; with holdout = {share:g} it "
            "needs at least one to train on, and another one to measure on"
        )
    held = _before(draws, (fold + 1) * share)
    if fold:
        held &= ~_before(draws, fold * share)
        if held.all() or not held.any():
            raise DataError(
                f"client {client} has {len(draws)} examples, which do not give fold {fold} of holdout = {share:g} "
                "one to train on and one to measure on: use a larger share"
            )
    elif not held.any():
        held = draws == draws.min()
    elif held.all():
        held = draws != draws.max()
    return np.flatnonzero(~held), np.flatnonzero(held)


def _before(draws: np.ndarray, end: float) -> np.ndarray:
    """Which draws are below this share of all."""
    everything = end > 1.0 - 1e-9  # K times 1 / K may be a little less than 1
    below: np.ndarray = np.ones(len(draws), bool) if everything else draws < np.uint64(int(end * 2**64))
    return below
