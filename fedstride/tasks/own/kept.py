"""What a site says of its columns: mean and deviation of each, the same until enough rows have changed.

Two answers that differ by a few rows would say what these rows contain. So an answer is kept with the rows of
which it was made, and repeated until `min_rows` rows differ. It is of one column alone, over all rows of the file,
whatever else a run asks for.

    <rows>/rows.npy         digests of the rows of which answers are made, sorted, uint8 (n, 16)
    <rows>/columns.json     {column: [count, mean, squares]}
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..columns import parsed
from ..inputs import Kind
from ..moments import AXES, Moments
from ..spec import Spec, Target
from ..statistics import of_examples
from .found import Found

COLUMNS, ROWS = "columns.json", "rows.npy"

MOST = 16
"""Sets of rows that are kept; the one that was used longest ago goes first."""


def moments(folder: Path, found: Found, spec: Spec, form: Mapping[str, Any], min_rows: int) -> Moments | None:
    """The moments that the site says of examples of this form; None for tokens, which have none.

    `found`: all its examples. `form`: what of a message and of the site's file the arrays depend on.
    """
    if spec.inputs.kind not in AXES:
        return None
    names = _names(spec, form)
    place, before = _nearest(folder, _sorted(found.contents), max(min_rows, 1))
    known = json.loads((place / COLUMNS).read_text())
    if any(name not in known for name in names):
        same = _of_rows(found, before)
        fresh = said(of_examples(same.x, same.y, spec), same, spec, min_rows)
        for at, name in enumerate(names):
            known.setdefault(name, [float(each[at]) for each in vars(fresh).values()])
        _write(place / COLUMNS, known)
    os.utime(place)
    return Moments(*np.array([known[name] for name in names], np.float64).reshape(-1, 3).T)


def _of_rows(found: Found, before: np.ndarray) -> Found:
    """The examples that are among these rows; none if one of the rows is gone."""
    digests = _as_text(found.contents)
    order = np.argsort(digests, kind="stable")
    chosen, at = [], 0
    for digest in _as_text(before):
        while at < len(order) and digests[order[at]] < digest:
            at += 1
        if at == len(order) or digests[order[at]] != digest:
            return Found(*(each[:0] for each in vars(found).values()))
        chosen.append(order[at])
        at += 1
    rows = np.sort(np.array(chosen, np.int64))
    return Found(*(each[rows] for each in vars(found).values()))


def said(found: Moments, examples: Found, spec: Spec, min_rows: int) -> Moments:
    """What may be said of these moments: nothing of a column, or of a category, that only a few rows have.

    A count that differs by only a few from the number of rows is said as that number.
    """
    if min_rows <= 1:
        return found
    total = found.count.max(initial=0.0) if spec.inputs.kind is not Kind.TABLE else float(len(examples.y))
    count, mean, squares = found.count.copy(), found.mean.copy(), found.squares.copy()
    few = (count < total) & (total - count < min_rows)
    squares[few] *= total / count[few]
    count[few] = total
    hidden = (found.count < min_rows) | (len(examples.y) < min_rows)
    start = 0
    for column in parsed(spec.reading.columns) if spec.inputs.kind is Kind.TABLE else ():
        for at in range(start, start + len(column.categories)):
            holders = round(found.mean[at] * found.count[at])
            hidden[at] |= min(holders, found.count[at] - holders) < min_rows
        start += column.width
    return Moments(*(np.where(hidden, 0.0, each) for each in (count, mean, squares)))


def differing(now: np.ndarray, before: np.ndarray) -> int:
    """How many rows were added, or taken away, whichever is more; of digests (n, 16), which may be there twice."""
    digests = np.concatenate([_as_text(now), _as_text(before)])
    kinds, place = np.unique(digests, return_inverse=True)
    difference = np.bincount(place[: len(now)], minlength=len(kinds)) - np.bincount(
        place[len(now) :], minlength=len(kinds)
    )
    return int(max(difference.clip(min=0).sum(), (-difference).clip(min=0).sum()))


def _nearest(folder: Path, now: np.ndarray, min_rows: int) -> tuple[Path, np.ndarray]:
    """The kept rows from which fewer than `min_rows` rows differ, and their folder; else these rows, kept now."""
    folder.mkdir(mode=0o700, exist_ok=True)
    kept = {path: np.load(path / ROWS, allow_pickle=False) for path in folder.iterdir() if (path / ROWS).exists()}
    difference, place = min(
        ((differing(now, before), str(path)) for path, before in kept.items()), default=(min_rows, "")
    )
    if difference < min_rows:
        return Path(place), kept[Path(place)]
    for path in sorted(kept, key=lambda each: each.stat().st_mtime)[: max(0, len(kept) - MOST + 1)]:
        shutil.rmtree(path)
    new = folder / hashlib.sha256(now.tobytes()).hexdigest()[:16]
    new.mkdir(mode=0o700, exist_ok=True)
    _write(new / COLUMNS, {})
    np.save(new / ROWS, now, allow_pickle=False)  # written last
    return new, now


def _names(spec: Spec, form: Mapping[str, Any]) -> list[str]:
    """A name for each number of which there are moments: of a column, or of a place in an example of this form."""
    if spec.inputs.kind is Kind.TABLE and form["columns"]:
        own = [
            f"{each.name}={name}" if each.categories else each.name
            for each in parsed(spec.reading.columns)
            for name in each.categories or ("",)
        ]
        return [*own, *(spec.reading.targets if spec.target is Target.VALUES else ())]
    text = hashlib.sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()[:32]
    count = spec.inputs.shape[0 if spec.inputs.kind in (Kind.IMAGE, Kind.SIGNAL) else -1]
    values = spec.outputs if spec.target is Target.VALUES else 0
    return [f"{text}:{at}" for at in range(count + values)]


def _sorted(digests: np.ndarray) -> np.ndarray:
    return np.sort(_as_text(digests)).view(np.uint8).reshape(-1, digests.shape[1])


def _as_text(digests: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(digests).view(f"S{digests.shape[1]}").ravel()


def _write(path: Path, known: Mapping[str, Any]) -> None:
    new = path.with_name(f".{path.name}.new")
    new.write_text(json.dumps(known, sort_keys=True))
    os.replace(new, path)
