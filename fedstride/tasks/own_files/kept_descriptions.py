"""What a site said of its columns, repeated until enough rows differ, and of each until enough of its values do.

<rows>/described.json           {question about a column: what was said}, see `column_statistics.py`
<rows>/described-values.json    counts of the values of which each was made (`kept_values.py`)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..spec import Spec
from ..statistics.description import PRESENT, Told, from_json, of_other_rows, to_json
from . import column_statistics, column_values, kept_values
from .column_statistics import KeptReport
from .kept_values import Answered
from .reader_result import ReaderResult
from .tables.counted_faults import Seen

DESCRIBED, VALUES = "described.json", "described-values.json"


def repeated(
    folder: Path, examples: ReaderResult, spec: Spec, seen: Sequence[Seen], least: int
) -> tuple[int, list[Told]]:
    """The number of rows, and what may be said of each column without its moments.

    Where fewer than `least` rows differ from those of an answer that is kept in `folder`, it is that answer. A
    column of which only a few values have come or gone is described as before, too, as one of the number of rows
    that is said now: an answer never has more values than rows.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    examples, by_id = column_statistics.with_ids(examples)
    now, sets = column_statistics.in_order(examples.contents), column_statistics.sets(folder)
    distance = {entry.place: column_statistics.distance_of(now, entry.rows, by_id) for entry in sets}
    sets = sorted(sets, key=lambda entry: distance[entry.place])
    near = [entry for entry in sets if distance[entry.place] < least]
    keys = [_key(column) for column in seen]
    said = next((answers for entry in near if (answers := _read(entry.place)).keys() >= {*keys, ROWS}), None)
    if said is None:
        whole = (
            (entry, rows)
            for entry in near
            if (rows := column_statistics.of_rows(examples, entry.rows)) is not None
        )
        of, rows = next(whole, None) or (column_statistics.made(folder, now, sets), examples)
        said = _kept_now(of.place, rows, spec, seen, least, near, sets)
    column_statistics.used(folder, near)
    return said[ROWS], [from_json(said[key]) for key in keys]


def _kept_now(
    place: Path,
    examples: ReaderResult,
    spec: Spec,
    seen: Sequence[Seen],
    least: int,
    near: Sequence[KeptReport],
    sets: Sequence[KeptReport],
) -> dict[str, Any]:
    """What is said of these rows and columns, and kept from now on.

    What was said of a set of rows of which only a few differ (`near`, the nearest first) is said again.
    """
    salt = kept_values.salt_of(entry.place / VALUES for entry in sets)
    before = [Answered(_read(entry.place), kept_values.read(entry.place / VALUES)) for entry in sets]
    nearest = before[: len(near)]
    here, values = column_values.of_rows(examples, spec)
    count = next((one.answers[ROWS] for one in nearest if ROWS in one.answers), here)
    said, counts = dict[str, Any]({ROWS: count}), dict[str, np.ndarray]()
    for column, array in zip(seen, values, strict=True):
        key = _key(column)
        if array is not None and column.state == PRESENT:
            there = np.where(array < 0, np.nan, array) if column.asked.categories else array
            counts[key] = kept_values.counts_of(there, salt)
        with_counts = [one for one in before if one.answers.get(key, {}).get("counts")]
        close = kept_values.close(key, counts.get(key), with_counts, least)
        if earlier := next((one for one in nearest if key in one.answers), close):
            told, of = from_json(earlier.answers[key]), earlier.answers[ROWS]
            counts |= {key: earlier.values[key]} if key in earlier.values else {}
        else:
            told, of = column_values.told(column, array, least), here
        said[key] = to_json(of_other_rows(told, of, count, least))
    kept_values.write(place / VALUES, salt, kept_values.read(place / VALUES) | counts)
    kept_values.keep(place / DESCRIBED, _read(place) | said)
    return said


ROWS = ""
"""The key of the number of rows; no column has it."""


def _key(seen: Seen) -> str:
    """The question about a column, as a text."""
    asked = seen.asked
    return json.dumps([asked.name, list(asked.categories), asked.predicted, seen.state])


def _read(place: Path) -> dict[str, Any]:
    path = place / DESCRIBED
    if not path.exists():
        return {}
    with kept_values.reading(path):
        return dict(json.loads(path.read_text()))
