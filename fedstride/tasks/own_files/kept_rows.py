"""The rows of a site of which something was said, as digests: what was said is repeated while only a few differ.

    <rows>/rows.npy     digests of the rows, sorted, uint8 (n, 16)
    <rows>/ids.npy      of rows with ids, a digest of all rows of each id, sorted, uint8 (ids, 16)
    <rows>/columns.json, described.json     answers about them (`column_statistics.py`, `kept_descriptions.py`)

Rows are compared, and ids too where both have them: as few differ as the smaller number says. So an id that a site
adds to its data file later makes no row another one.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...files import atomic
from ..evaluation.holdout import digest_of, stacked
from . import kept_values
from .reader_result import ReaderResult

ROWS, IDS = "rows.npy", "ids.npy"
MOMENTS, DESCRIBED = ANSWERS = "columns.json", "described.json"

MOST = 16
"""Sets of rows that are kept; the one that was used longest ago goes first, but none near the present rows."""


class SetOfRows(NamedTuple):
    """Sorted digests of rows (n, 16) and, if they have ids, of these (ids, 16); and where they are kept."""

    rows: np.ndarray
    ids: np.ndarray | None = None
    place: Path | None = None

    @property
    def name(self) -> str:
        """Of the folder in which such a set is kept."""
        return hashlib.sha256(self.rows.tobytes() + (b"" if self.ids is None else self.ids.tobytes())).hexdigest()[
            :16
        ]


class Chosen(NamedTuple):
    """The examples of which something new is said, as a set; kept or not."""

    examples: ReaderResult
    of: SetOfRows


def set_of(examples: ReaderResult) -> SetOfRows:
    """The rows of these examples as a set."""
    rows = in_order(examples.contents)
    if not examples.has_ids:
        return SetOfRows(rows)
    groups: dict[bytes, list[bytes]] = {}
    for row, content in zip(examples.rows, examples.contents, strict=True):
        groups.setdefault(row.tobytes(), []).append(content.tobytes())
    return SetOfRows(
        rows, in_order(stacked(digest_of(b"".join(sorted(contents))) for contents in groups.values()))
    )


def distance(one: SetOfRows, other: SetOfRows) -> int:
    """How many rows were added, or taken away, whichever is more; or how many ids, if these are fewer."""
    apart = differing(one.rows, other.rows)
    if one.ids is None or other.ids is None:
        return apart
    return min(apart, differing(one.ids, other.ids))


def near(now: SetOfRows, kept: Iterable[SetOfRows], least: int) -> list[SetOfRows]:
    """Those of which fewer than `least` rows differ from these, the nearest first."""
    apart = [(distance(now, entry), entry) for entry in kept]
    return [entry for steps, entry in sorted(apart, key=lambda pair: pair[0]) if steps < least]


def chosen(examples: ReaderResult, now: SetOfRows, near: Sequence[SetOfRows]) -> Chosen:
    """The rows of the nearest set whose rows are all here, so that the answers about a set are of the same rows;
    without one, all."""
    for entry in near:
        if (rows := of_rows(examples, entry.rows)) is not None:
            return Chosen(rows, set_of(rows))
    return Chosen(examples, now)


def of_rows(examples: ReaderResult, before: np.ndarray) -> ReaderResult | None:
    """The examples that are among these rows; None if one of the rows is gone."""
    digests = _as_text(examples.contents)
    order = np.argsort(digests, kind="stable")
    found, at = [], 0
    for digest in _as_text(before):
        while at < len(order) and digests[order[at]] < digest:
            at += 1
        if at == len(order) or digests[order[at]] != digest:
            return None
        found.append(order[at])
        at += 1
    rows = np.sort(np.array(found, np.int64))
    return ReaderResult(*(array[rows] for array in vars(examples).values()))


def differing(now: np.ndarray, before: np.ndarray) -> int:
    """How many rows were added, or taken away, whichever is more; of digests (n, 16), which may be there twice."""
    digests = np.concatenate([_as_text(now), _as_text(before)])
    kinds, place = np.unique(digests, return_inverse=True)
    difference = np.bincount(place[: len(now)], minlength=len(kinds)) - np.bincount(
        place[len(now) :], minlength=len(kinds)
    )
    return int(max(difference.clip(min=0).sum(), (-difference).clip(min=0).sum()))


def sets(folder: Path) -> list[SetOfRows]:
    """All sets that are kept. Raises DataError if one is damaged."""
    return [_kept(path) for path in sorted(folder.iterdir()) if (path / ROWS).exists()]


def _kept(place: Path) -> SetOfRows:
    ids = _loaded(place / IDS) if (place / IDS).exists() else None
    return SetOfRows(_loaded(place / ROWS), ids, place)


def _loaded(path: Path) -> np.ndarray:
    with kept_values.reading(path):
        return np.asarray(np.load(path, allow_pickle=False))


def place_of(folder: Path, rows: SetOfRows) -> Path:
    """The folder of this set, which is kept from now on."""
    place = folder / rows.name
    if not (place / ROWS).exists():
        place.mkdir(mode=0o700, exist_ok=True)
        for name in ANSWERS:
            kept_values.keep(place / name, {})
        if rows.ids is not None:
            _write(place / IDS, rows.ids)
        _write(place / ROWS, rows.rows)  # last: with it, the set counts
    return place


def answers_in(place: Path | None, name: str) -> dict[str, Any]:
    """The answers of one kind about a set, by question. Raises DataError if they are damaged, or gone."""
    if place is None:
        return {}
    with kept_values.reading(place / name):
        return dict(json.loads((place / name).read_text()))


def _write(path: Path, digests: np.ndarray) -> None:
    np.save(content := io.BytesIO(), digests, allow_pickle=False)
    atomic.write(path, content.getvalue(), mode=0o600, durable=True)


def used(folder: Path, sets: Iterable[SetOfRows]) -> None:
    """Mark the sets that are kept as used now; remove those that were used longest ago, but none of them.

    `sets`: those near the present rows, and the one of which something was said now.
    """
    places = {place for entry in sets if (place := folder / entry.name).is_dir()}
    for place in places:
        os.utime(place)
    others = (path for path in folder.iterdir() if path.is_dir() and path not in places)
    old = sorted(others, key=lambda path: path.stat().st_mtime)
    for path in old[: max(0, len(old) + len(places) - MOST)]:
        shutil.rmtree(path)


def in_order(digests: np.ndarray) -> np.ndarray:
    """The digests (n, 16), sorted."""
    return np.sort(_as_text(digests)).view(np.uint8).reshape(-1, digests.shape[1])


def _as_text(digests: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(digests).view(f"S{digests.shape[1]}").ravel()
