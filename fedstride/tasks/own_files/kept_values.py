"""How many values of a column have come or gone since an answer about it was made, without keeping the values.

Two answers about a column that differ by a few values would say what these are, also where many rows differ: a
unit is changed in one column, and one cell in another. So beside each answer there are counts of the values of
which it was made: the digest of a value chooses one of BINS counts, four times. Values that share a count can hide
a change and never add one, so at least as many values differ as the counts say, and an answer is repeated once too
often rather than once too few. The counts need at most 22 KB a column, however many rows there are.

    {"salt": ..., "values": {question: counts, compressed, in base64}}       a file of mode 0600
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import DataError
from ...files import atomic

TIMES, BINS = 4, 1024
"""The chance that a change of 20 values looks like one of 19 is about 1 %."""


class Answered(NamedTuple):
    """Answers by question, and the counts of the values of which each was made."""

    answers: Mapping[str, Any]
    values: Mapping[str, np.ndarray]


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raises DataError if this file of kept answers is not one: without it, too much could be said."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, EOFError, zlib.error) as error:
        raise DataError(
            f"{path} is damaged ({type(error).__name__}), and with it what was said of these data before: restore "
            f"it from a backup. Without the folder {path.parent}, the next answers are of the present rows, also "
            "if only a few rows have changed"
        ) from error


def keep(path: Path, value: Mapping[str, Any]) -> None:
    """Write such a file: answers are said only when they are on the disk. Raises OSError."""
    atomic.write(path, json.dumps(value, sort_keys=True).encode(), mode=0o600, durable=True)


def salt_of(paths: Iterable[Path]) -> int:
    """The salt of the first of these files that is there, else a new one: counts of two salts do not compare."""
    known = next((path for path in paths if path.exists()), None)
    if known is None:
        return int.from_bytes(os.urandom(8))
    with reading(known):
        return int(json.loads(known.read_text())["salt"])


def read(path: Path) -> dict[str, np.ndarray]:
    """The counts of a file, by question; none if there is no file."""
    if not path.exists():
        return {}
    with reading(path):
        texts = json.loads(path.read_text())["values"]
        return {
            key: np.frombuffer(zlib.decompress(b64decode(text)), "<u4").reshape(TIMES, BINS)
            for key, text in texts.items()
        }


def write(path: Path, salt: int, values: Mapping[str, np.ndarray]) -> None:
    """Write counts for `read`."""
    texts = {
        key: b64encode(zlib.compress(counts.astype("<u4").tobytes())).decode() for key, counts in values.items()
    }
    keep(path, {"salt": salt, "values": texts})


def counts_of(values: np.ndarray, salt: int, ids: np.ndarray | None = None) -> np.ndarray:
    """The counts of values (n, ...), uint32 (TIMES, BINS); a value that is NaN throughout is none.

    `ids`: the number of the id of each value, from 0. All values of an id count as one.
    """
    digests, there = _digests(values.reshape(len(values), -1), salt)
    if ids is not None:
        of_id, of_ids = np.zeros(int(ids.max()) + 1, np.uint64), np.zeros(int(ids.max()) + 1, bool)
        np.add.at(of_id, ids[there], digests[there])
        of_ids[ids[there]] = True
        digests, there = _mixed(of_id), of_ids
    digests = digests[there]
    places = ((digests >> np.uint64(16 * time)) & np.uint64(BINS - 1) for time in range(TIMES))
    return np.stack([np.bincount(place.astype(np.int64), minlength=BINS) for place in places]).astype(np.uint32)


def _digests(values: np.ndarray, salt: int) -> tuple[np.ndarray, np.ndarray]:
    """A digest for each row of (n, m), uint64 (n,), and whether it has a number."""
    nan = np.isnan(values) if values.dtype.kind == "f" else np.zeros(values.shape, bool)
    if values.shape[1] == 1:
        numbers = values[:, 0].astype(np.float64) + 0.0  # -0.0 becomes 0.0
        return _mixed(_mixed(numbers.view(np.uint64)) ^ np.uint64(salt)), ~nan[:, 0]
    key = salt.to_bytes(8)
    digests = (blake2b(row.tobytes(), digest_size=8, key=key).digest() for row in values)
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64), ~np.asarray(nan.all(axis=1))


def _mixed(words: np.ndarray) -> np.ndarray:
    """Each of uint64 words as another one (SplitMix64): each bit depends on all."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(words ^ (words >> np.uint64(31)))


def differing(now: np.ndarray, before: np.ndarray) -> int:
    """At least how many values were added, or taken away, whichever is more."""
    change = now.astype(np.int64) - before.astype(np.int64)
    return int(np.maximum(change.clip(min=0).sum(axis=1), (-change).clip(min=0).sum(axis=1)).max())


def close(key: str, now: np.ndarray | None, before: Sequence[Answered], least: int) -> Answered | None:
    """The first of these whose answer to a question was made of values of which fewer than `least` differ.

    The counts of a repeated answer stay those of which it was made: many small steps are together a large one.
    """
    if now is None:
        return None
    return next(
        (one for one in before if key in one.values and differing(now, one.values[key]) < least),
        None,
    )
