"""What a site says of its columns: mean, deviation and bins of each, the same until enough rows have changed.

Two answers that differ by a few rows would say what these rows contain. So an answer is kept with the rows of
which it was made (`kept_rows.py`), and repeated until `min_rows` rows differ. It is of one column alone, over all
rows of the file, whatever else a run asks for. Where enough rows differ, a column of which only a few values do is
said as before (`kept_values.py`). A column that the site reads in another way than before (`questions.py`) is said
of the same rows; where some of them are gone, nothing is said of it until enough rows differ.

    <rows>/columns.json     {question: [count, mean, squares]}, and of a median [count, and bins as in a message]
    <rows>/values.json      counts of the values of which each of these was made
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..inputs import Kind
from ..spec import Spec, Target
from ..statistics.medians import NOTHING, CellBins, cells_of, packed, unpacked
from ..statistics.moments import AXES, Moments
from ..statistics.over_sites import Report, columns_of, medians_of, of_examples
from . import kept_rows, kept_values, questions
from .kept_rows import Chosen, SetOfRows
from .kept_values import Answered
from .questions import MEDIAN, MOMENTS, Asker
from .reader_result import ReaderResult
from .small_groups import ids_of, said

VALUES = "values.json"

Answers = dict[str, list[float]]


class Asked(NamedTuple):
    """The questions of a message: of each number of which there are moments, and of each median."""

    moments: Sequence[str]
    medians: Sequence[str]

    @property
    def all(self) -> list[str]:
        """In the order in which they are answered."""
        return [*self.moments, *self.medians]


def report(
    folder: Path, examples: ReaderResult, spec: Spec, form: Mapping[str, Any], asker: Asker
) -> Report | None:
    """What the site says of examples of this form; None for tokens, of which nothing is said.

    `form`: what of a message and of the site's file the arrays depend on.
    """
    if spec.inputs.kind not in AXES:
        return None
    asked, now, least = _asked(spec, form, asker), kept_rows.set_of(examples), max(asker.least, 1)
    folder.mkdir(mode=0o700, exist_ok=True)
    kept = kept_rows.sets(folder)
    near = kept_rows.near(now, kept, least)
    known = {question: answer for entry in reversed(near) for question, answer in _answers_of(entry).items()}
    if missing := [question for question in asked.all if question not in known]:
        chosen = kept_rows.chosen(examples, now, near)
        known |= _answers(folder, chosen, spec, asked, missing, kept, least)
        near = [*near, chosen.of]
    kept_rows.used(folder, near)
    moments = Moments(*np.array([known[question] for question in asked.moments], np.float64).reshape(-1, 3).T)
    return Report(moments, [unpacked(known[question][1:], 1)[0] for question in asked.medians])


def _answers(
    folder: Path,
    chosen: Chosen,
    spec: Spec,
    asked: Asked,
    missing: Sequence[str],
    kept: Sequence[SetOfRows],
    least: int,
) -> Answers:
    """Answers to questions without one, kept from now on; those that must wait say nothing, and are not kept."""
    before = [(entry, _answers_of(entry)) for entry in kept]
    waiting = {one for one in missing if questions.must_wait(one, chosen.of, before, least)}
    answers = _of_rows(chosen.examples, spec, asked, least)
    fresh = {question: answers[question] for question in missing if question not in waiting}
    if fresh:
        place = kept_rows.place_of(folder, chosen.of)
        fresh = _kept_now(place, fresh, chosen.examples, spec, asked, kept, least)
    unsaid = _unsaid(asked)
    return fresh | {question: unsaid[question] for question in waiting}


def _of_rows(rows: ReaderResult, spec: Spec, asked: Asked, least: int) -> Answers:
    """All answers about these rows."""
    fresh = said(of_examples(rows.x, rows.y, spec), rows, spec, least)
    numbers = [[float(array[at]) for array in vars(fresh).values()] for at in range(len(fresh.count))]
    ids = ids_of(rows)
    bins = [_median(cells_of(rows.x[:, at], least, ids)) for at in medians_of(spec).values()]
    return dict(zip(asked.all, [*numbers, *bins], strict=True))


def _unsaid(asked: Asked) -> Answers:
    return {question: [0.0, 0.0, 0.0] for question in asked.moments} | {
        question: _median(NOTHING) for question in asked.medians
    }


def _median(cells: CellBins) -> list[float]:
    return [float(cells.counts.sum()), *packed([cells])]


def _kept_now(
    place: Path,
    answers: Answers,
    rows: ReaderResult,
    spec: Spec,
    asked: Asked,
    kept: Sequence[SetOfRows],
    least: int,
) -> Answers:
    """These answers, or earlier ones of columns of which only a few values have come or gone; kept from now on."""
    salt = kept_values.salt_of(entry.place / VALUES for entry in kept if entry.place is not None)
    values, new = _values(rows, spec, asked, answers, salt), dict(answers)
    before = [
        Answered(_answers_of(entry), kept_values.read(entry.place / VALUES)) for entry in kept if entry.place
    ]
    for question in answers:
        with_values = [one for one in before if question in one.answers and one.answers[question][0] > 0]
        if close := kept_values.close(question, values[question], with_values, least):
            new[question], values[question] = close.answers[question], close.values[question]
    kept_values.write(place / VALUES, salt, kept_values.read(place / VALUES) | values)
    earlier = kept_rows.answers_in(place, kept_rows.MOMENTS)
    kept_values.keep(place / kept_rows.MOMENTS, earlier | new)
    return new


def _values(
    examples: ReaderResult, spec: Spec, asked: Asked, of: Collection[str], salt: int
) -> dict[str, np.ndarray]:
    """The counts of the values of these columns (`kept_values.py`); of rows with ids, an id's are one value."""
    ids, columns = ids_of(examples), columns_of(examples.x, examples.y, spec)
    columns += [examples.x[:, at] for at in medians_of(spec).values()]
    return {
        question: kept_values.counts_of(values, salt, ids)
        for question, values in zip(asked.all, columns, strict=True)
        if question in of
    }


def _answers_of(entry: SetOfRows) -> Answers:
    return kept_rows.answers_in(entry.place, kept_rows.MOMENTS)


def _asked(spec: Spec, form: Mapping[str, Any], asker: Asker) -> Asked:
    """The questions of each column, or of each place in an example of this form."""
    medians = [asker.question(MEDIAN, name, [name]) for name in medians_of(spec)]
    if spec.inputs.kind is Kind.TABLE and form["columns"]:
        columns = [
            asker.question(MOMENTS, f"{column.name}={name}" if column.categories else column.name, [column.name])
            for column in spec.reading.parsed
            for name in column.categories or ("",)
        ]
        targets = spec.reading.targets if spec.target is Target.VALUES else ()
        return Asked([*columns, *(asker.question(MOMENTS, name, [name]) for name in targets)], medians)
    if form["columns"] and spec.reading.signals:
        samples = range(spec.inputs.shape[1])
        signals = spec.reading.signals
        return Asked(
            [asker.question(MOMENTS, name, [f"{name}_{at}" for at in samples]) for name in signals], medians
        )
    text = json.dumps(form, sort_keys=True)
    count = spec.inputs.shape[0 if spec.inputs.kind in (Kind.IMAGE, Kind.SIGNAL) else -1]
    values = spec.outputs if spec.target is Target.VALUES else 0
    return Asked([asker.question(MOMENTS, str(at), [str(at)], text) for at in range(count + values)], medians)
