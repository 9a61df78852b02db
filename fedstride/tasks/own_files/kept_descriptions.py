"""What a site said of its columns, repeated until enough rows differ, and of each until enough of its values do.

<rows>/described.json           {question about a column: what was said}, see `kept_rows.py`
<rows>/described-values.json    counts of the values of which each was made (`kept_values.py`)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..spec import Spec
from ..statistics.description import PRESENT, Told, from_json, of_other_rows, to_json
from . import column_values, kept_rows, kept_values, questions
from .kept_rows import Chosen, SetOfRows
from .kept_values import Answered
from .questions import DESCRIPTION, Asker
from .reader_result import ReaderResult
from .tables.counted_faults import Seen

VALUES = "described-values.json"

ROWS = ""
"""The key of the number of rows, which no question is."""


class Repeated(NamedTuple):
    """The number of rows, what may be said of each column without its moments, and names of columns that wait."""

    rows: int
    columns: list[Told]
    waiting: list[str]


def repeated(folder: Path, examples: ReaderResult, spec: Spec, seen: Sequence[Seen], asker: Asker) -> Repeated:
    """What is said of these columns.

    Where fewer than `asker.least` rows differ from those of an answer that is kept in `folder`, it is that answer.
    A column of which only a few values have come or gone is described as before, too, as one of the number of rows
    that is said now: an answer never has more values than rows. Of one that must wait (`questions.py`) no value
    is said.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    now, kept = kept_rows.set_of(examples), kept_rows.sets(folder)
    near = kept_rows.near(now, kept, asker.least)
    asked = [_question(column, asker) for column in seen]
    said = next((answers for entry in near if (answers := _said_of(entry)).keys() >= {*asked, ROWS}), None)
    waiting: list[str] = []
    if said is None:
        chosen = kept_rows.chosen(examples, now, near)
        before = [(entry, _said_of(entry).keys() - {ROWS}) for entry in kept]
        known = {question for entry in near for question in _said_of(entry)}
        waiting = [
            question
            for question, column in zip(asked, seen, strict=True)
            if column.state == PRESENT
            and question not in known
            and questions.must_wait(question, chosen.of, before, asker.least)
        ]
        said = _kept_now(
            folder, chosen, spec, list(zip(asked, seen, strict=True)), asker.least, near, kept, waiting
        )
        near = [*near, chosen.of]
    kept_rows.used(folder, near)
    names = [column.asked.name for question, column in zip(asked, seen, strict=True) if question in waiting]
    return Repeated(said[ROWS], [from_json(said[question]) for question in asked], names)


def _kept_now(
    folder: Path,
    chosen: Chosen,
    spec: Spec,
    asked: Sequence[tuple[str, Seen]],
    least: int,
    near: Sequence[SetOfRows],
    kept: Sequence[SetOfRows],
    waiting: Collection[str],
) -> dict[str, Any]:
    """What is said of these rows and columns, and kept from now on; nothing of those that wait.

    What was said of a set of rows of which only a few differ (`near`, the nearest first) is said again.
    """
    salt = kept_values.salt_of(entry.place / VALUES for entry in kept if entry.place is not None)
    before = [Answered(_said_of(entry), _values_of(entry)) for entry in (*near, *_others(kept, near))]
    nearest = before[: len(near)]
    here, values = column_values.of_rows(chosen.examples, spec)
    count = next((one.answers[ROWS] for one in nearest if ROWS in one.answers), here)
    said, counts = dict[str, Any]({ROWS: count}), dict[str, np.ndarray]()
    for (question, column), array in zip(asked, values, strict=True):
        if question in waiting:
            continue
        if array is not None and column.state == PRESENT:
            there = np.where(array < 0, np.nan, array) if column.asked.categories else array
            counts[question] = kept_values.counts_of(there, salt)
        with_counts = [one for one in before if one.answers.get(question, {}).get("counts")]
        close = kept_values.close(question, counts.get(question), with_counts, least)
        if earlier := next((one for one in nearest if question in one.answers), close):
            told, of = from_json(earlier.answers[question]), earlier.answers[ROWS]
            counts |= {question: earlier.values[question]} if question in earlier.values else {}
        else:
            told, of = column_values.told(column, array, least), here
        said[question] = to_json(of_other_rows(told, of, count, least))
    place = kept_rows.place_of(folder, chosen.of)
    kept_values.write(place / VALUES, salt, kept_values.read(place / VALUES) | counts)
    kept_values.keep(place / kept_rows.DESCRIBED, kept_rows.answers_in(place, kept_rows.DESCRIBED) | said)
    return said | {question: to_json(Told(missing=count)) for question in waiting}


def _others(kept: Sequence[SetOfRows], near: Sequence[SetOfRows]) -> list[SetOfRows]:
    places = {entry.place for entry in near}
    return [entry for entry in kept if entry.place not in places]


def _question(seen: Seen, asker: Asker) -> str:
    """The question about a column, as a text; of no column if the site has none like this and so says nothing."""
    asked = seen.asked
    columns = [asked.name] if seen.state == PRESENT else []
    return asker.question(DESCRIPTION, asked.name, columns, asked.categories, asked.predicted, seen.state)


def _said_of(entry: SetOfRows) -> dict[str, Any]:
    return kept_rows.answers_in(entry.place, kept_rows.DESCRIBED)


def _values_of(entry: SetOfRows) -> dict[str, np.ndarray]:
    return {} if entry.place is None else kept_values.read(entry.place / VALUES)
