"""What a site says of its columns: mean, deviation and bins of each, the same until enough rows have changed.

Two answers that differ by a few rows would say what these rows contain. So an answer is kept with the rows of
which it was made, and repeated until `min_rows` rows differ. It is of one column alone, over all rows of the file,
whatever else a run asks for. Where enough rows differ, a column of which only a few values do is said as before
(`kept_values.py`).

    <rows>/rows.npy         digests of the rows of which answers are made, sorted, uint8 (n, 16)
    <rows>/columns.json     {column: [count, mean, squares]}, and for a median [count, and bins as in a message]
    <rows>/values.json      counts of the values of which each of these was made
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...files import atomic
from ..evaluation.holdout import digest_of, stacked
from ..inputs import Kind
from ..spec import Spec, Target
from ..statistics.medians import cells_of, packed, unpacked
from ..statistics.moments import AXES, Moments
from ..statistics.over_sites import Report, columns_of, medians_of, of_examples
from . import kept_values
from .kept_values import Answered
from .reader_result import ReaderResult
from .small_groups import ids_of, said

COLUMNS, ROWS, VALUES = "columns.json", "rows.npy", "values.json"
OF_MEDIAN = "median\x1f"
"""Begins the key of a column's bins; no name of a column can contain this character."""

MOST = 16
"""Sets of rows that are kept; the one that was used longest ago goes first, but none near the present rows."""


class KeptReport(NamedTuple):
    """Rows of which answers were made, and the answers: count, mean and squares of each column."""

    place: Path
    rows: np.ndarray
    answers: dict[str, list[float]]


def report(
    folder: Path, examples: ReaderResult, spec: Spec, form: Mapping[str, Any], min_rows: int
) -> Report | None:
    """What the site says of examples of this form; None for tokens, of which nothing is said.

    `found`: all its examples. `form`: what of a message and of the site's file the arrays depend on.
    """
    if spec.inputs.kind not in AXES:
        return None
    examples, by_id = with_ids(examples)
    columns, now, least = _names(spec, form), in_order(examples.contents), max(min_rows, 1)
    names = [*columns, *(OF_MEDIAN + name for name in medians_of(spec))]
    folder.mkdir(mode=0o700, exist_ok=True)
    kept = sets(folder)
    distance = {entry.place: distance_of(now, entry.rows, by_id) for entry in kept}
    near = sorted(
        (entry for entry in kept if distance[entry.place] < least), key=lambda entry: distance[entry.place]
    )
    known = {name: entry.answers[name] for entry in reversed(near) for name in names if name in entry.answers}
    if missing := [name for name in names if name not in known]:
        known |= _answers(folder, examples, spec, near, now, min_rows, names, missing, kept)
    used(folder, near)
    moments = Moments(*np.array([known[name] for name in columns], np.float64).reshape(-1, 3).T)
    return Report(moments, [unpacked(known[name][1:], 1)[0] for name in names[len(columns) :]])


def with_ids(examples: ReaderResult) -> tuple[ReaderResult, bool]:
    """The same with one digest for all rows of an id, made of all their contents; and whether there are ids."""
    if not examples.has_ids:
        return examples, False
    groups: dict[bytes, list[bytes]] = {}
    for row, content in zip(examples.rows, examples.contents, strict=True):
        groups.setdefault(row.tobytes(), []).append(content.tobytes())
    of_id = {row: digest_of(b"".join(sorted(contents))) for row, contents in groups.items()}
    return replace(examples, contents=stacked(of_id[row.tobytes()] for row in examples.rows)), True


def distance_of(now: np.ndarray, before: np.ndarray, by_id: bool) -> int:
    """How many rows differ; of rows with ids, how many ids."""
    if by_id:
        now, before = (np.unique(rows, axis=0) for rows in (now, before))
    return differing(now, before)


def _answers(
    folder: Path,
    examples: ReaderResult,
    spec: Spec,
    near: Sequence[KeptReport],
    now: np.ndarray,
    min_rows: int,
    names: Sequence[str],
    missing: Sequence[str],
    kept: Sequence[KeptReport],
) -> dict[str, list[float]]:
    """New answers for columns without one: of the kept rows if they are all here, else of these rows, kept now."""
    whole = ((entry, rows) for entry in near if (rows := of_rows(examples, entry.rows)) is not None)
    of, rows = next(whole, None) or (made(folder, now, kept), examples)
    fresh = said(of_examples(rows.x, rows.y, spec), rows, spec, min_rows)
    numbers = [[float(array[at]) for array in vars(fresh).values()] for at in range(len(fresh.count))]
    ids = ids_of(rows)
    bins = (cells_of(rows.x[:, at], min_rows, ids) for at in medians_of(spec).values())
    answers = dict(
        zip(names, [*numbers, *([float(cells.counts.sum()), *packed([cells])] for cells in bins)], strict=True)
    )
    return _kept_now(of, {name: answers[name] for name in missing}, rows, spec, names, kept, max(min_rows, 1))


def _kept_now(
    of: KeptReport,
    answers: Mapping[str, list[float]],
    rows: ReaderResult,
    spec: Spec,
    names: Sequence[str],
    kept: Sequence[KeptReport],
    least: int,
) -> dict[str, list[float]]:
    """These answers, or earlier ones of columns of which only a few values have come or gone; kept from now on."""
    salt = kept_values.salt_of(entry.place / VALUES for entry in kept)
    values, new = _values(rows, spec, names, answers, salt), dict(answers)
    before = [Answered(entry.answers, kept_values.read(entry.place / VALUES)) for entry in kept]
    for name in answers:
        with_values = [one for one in before if name in one.answers and one.answers[name][0] > 0]
        if close := kept_values.close(name, values[name], with_values, least):
            new[name], values[name] = close.answers[name], close.values[name]
    kept_values.write(of.place / VALUES, salt, kept_values.read(of.place / VALUES) | values)
    kept_values.keep(of.place / COLUMNS, of.answers | new)
    return new


def _values(
    examples: ReaderResult, spec: Spec, names: Sequence[str], of: Collection[str], salt: int
) -> dict[str, np.ndarray]:
    """The counts of the values of these columns (`kept_values.py`); of rows with ids, an id's are one value."""
    ids, columns = ids_of(examples), columns_of(examples.x, examples.y, spec)
    columns += [examples.x[:, at] for at in medians_of(spec).values()]
    return {
        name: kept_values.counts_of(values, salt, ids)
        for name, values in zip(names, columns, strict=True)
        if name in of
    }


def of_rows(examples: ReaderResult, before: np.ndarray) -> ReaderResult | None:
    """The examples that are among these rows; None if one of the rows is gone."""
    digests = _as_text(examples.contents)
    order = np.argsort(digests, kind="stable")
    chosen, at = [], 0
    for digest in _as_text(before):
        while at < len(order) and digests[order[at]] < digest:
            at += 1
        if at == len(order) or digests[order[at]] != digest:
            return None
        chosen.append(order[at])
        at += 1
    rows = np.sort(np.array(chosen, np.int64))
    return ReaderResult(*(array[rows] for array in vars(examples).values()))


def differing(now: np.ndarray, before: np.ndarray) -> int:
    """How many rows were added, or taken away, whichever is more; of digests (n, 16), which may be there twice."""
    digests = np.concatenate([_as_text(now), _as_text(before)])
    kinds, place = np.unique(digests, return_inverse=True)
    difference = np.bincount(place[: len(now)], minlength=len(kinds)) - np.bincount(
        place[len(now) :], minlength=len(kinds)
    )
    return int(max(difference.clip(min=0).sum(), (-difference).clip(min=0).sum()))


def sets(folder: Path) -> list[KeptReport]:
    """All sets of rows that are kept. Raises DataError if one is damaged."""
    return [_kept(path) for path in sorted(folder.iterdir()) if (path / ROWS).exists()]


def _kept(place: Path) -> KeptReport:
    with kept_values.reading(place / ROWS):
        rows = np.load(place / ROWS, allow_pickle=False)
    with kept_values.reading(place / COLUMNS):
        return KeptReport(place, rows, dict(json.loads((place / COLUMNS).read_text())))


def made(folder: Path, now: np.ndarray, kept: Sequence[KeptReport]) -> KeptReport:
    """These rows, kept from now on."""
    new = folder / hashlib.sha256(now.tobytes()).hexdigest()[:16]
    known = next((entry for entry in kept if entry.place == new), None)
    if known is not None:
        return known
    new.mkdir(mode=0o700, exist_ok=True)
    kept_values.keep(new / COLUMNS, {})
    np.save(content := io.BytesIO(), now, allow_pickle=False)
    atomic.write(new / ROWS, content.getvalue(), mode=0o600, durable=True)  # written last
    return KeptReport(new, now, {})


def used(folder: Path, near: Sequence[KeptReport]) -> None:
    """Mark these sets as used now, and remove those that were used longest ago, but none of these."""
    for entry in near:
        os.utime(entry.place)
    places = {entry.place for entry in near}
    old = sorted((path for path in folder.iterdir() if path not in places), key=lambda path: path.stat().st_mtime)
    for path in old[: max(0, len(old) + len(places) - MOST)]:
        shutil.rmtree(path)


def _names(spec: Spec, form: Mapping[str, Any]) -> list[str]:
    """A name for each number of which there are moments: of a column, or of a place in an example of this form."""
    if spec.inputs.kind is Kind.TABLE and form["columns"]:
        columns = [
            f"{column.name}={name}" if column.categories else column.name
            for column in spec.reading.parsed
            for name in column.categories or ("",)
        ]
        return [*columns, *(spec.reading.targets if spec.target is Target.VALUES else ())]
    if form["columns"] and spec.reading.signals:
        return [f"{name}_0 to _{spec.inputs.shape[1] - 1}" for name in spec.reading.signals]
    text = hashlib.sha256(json.dumps(form, sort_keys=True).encode()).hexdigest()[:32]
    count = spec.inputs.shape[0 if spec.inputs.kind in (Kind.IMAGE, Kind.SIGNAL) else -1]
    values = spec.outputs if spec.target is Target.VALUES else 0
    return [f"{text}:{at}" for at in range(count + values)]


def in_order(digests: np.ndarray) -> np.ndarray:
    """The digests (n, 16), sorted."""
    return np.sort(_as_text(digests)).view(np.uint8).reshape(-1, digests.shape[1])


def _as_text(digests: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(digests).view(f"S{digests.shape[1]}").ravel()
