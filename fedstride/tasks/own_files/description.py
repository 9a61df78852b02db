"""What a site says of its own data, or of a part of a task's: read, counted, and kept until enough rows differ."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from logging import WARNING
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import printable
from ...files import atomic
from ...flower.logs import log
from ..data_toml.site import SiteData, read_form_of
from ..forms.columns import alike
from ..inputs import Inputs, Kind
from ..missing import ERROR, MEAN
from ..reading import PREPARED_VARIABLE
from ..spec import Spec, Target
from ..statistics.description import (
    BELOW,
    MIN_ROWS,
    PRESENT,
    DescribedColumn,
    Description,
    Told,
    asked_of,
    from_json,
    of_categories,
    of_numbers,
    to_json,
)
from ..statistics.moments import AXES
from ..statistics.over_sites import measured as without_indicators
from ..statistics.over_sites import of_examples
from . import column_statistics
from .loading import examples_in, files, form, resolved
from .reader_result import ReaderResult
from .tables import counted_faults
from .tables.counted_faults import Seen

ANSWER = "description.json"
"""The file of an answer that a node has made, in the folder that the app of the message gets."""

DESCRIBED = "described.json"
"""The file beside the moments of a set of rows (`column_statistics.py`) that has what was said of each column."""


class Said(NamedTuple):
    """What a site says, and lines for its own log."""

    description: Description
    lines: Sequence[str] = ()


def of_site(site: SiteData, spec: Spec, least: int, statistics: Path | None = None) -> Said:
    """What a site says of its data. `statistics`: where what it said before is kept (`column_statistics.py`);
    None: nowhere.

    With ids, one row of each id counts. Raises DataError for data that cannot be read at all, and ConfigError as
    `loading.load` does.
    """
    spec = without_rules(spec)
    if spec.inputs.kind is Kind.TABLE and site.is_table:
        read = counted_faults.read(site, spec)
        examples, seen, unnamed, lines, readable = (
            read.examples,
            read.seen,
            read.unnamed,
            read.lines,
            read.readable,
        )
    else:
        site.check(spec)
        examples = examples_in(site, files(site, spec), spec)
        seen, unnamed, lines, readable = [Seen(column) for column in asked_of(spec)], 0, (), True
    if len(np.unique(examples.rows, axis=0)) < least:
        return Said(Description(least, few=True), lines)
    if statistics is None:
        rows, told = _answers(examples, spec, seen, least)
    else:
        rows, told = _repeated(statistics, examples, spec, seen, least)
    columns = told if site.is_of_any_form else _with_moments(told, examples, spec, seen, least, (site, statistics))
    columns = [_with_unknown(column, one, least) for column, one in zip(columns, seen, strict=True)]
    return Said(Description(least, False, rows, readable, unnamed, tuple(columns)), lines)


def description(path: str | Path, spec: Spec) -> dict[str, Any]:
    """What the site at `path` says of its data, as plain values of a message.

    A node has made it itself, with the smallest number of rows of its policy; else that is MIN_ROWS, and lines for
    the site's log are logged here. Raises the errors of `of_site`.
    """
    if folder := os.environ.get(PREPARED_VARIABLE):
        return dict(json.loads((Path(folder) / ANSWER).read_text()))
    site = read_form_of(resolved(path))
    said = of_site(replace(site, path=resolved(site.path)), spec, MIN_ROWS)
    for line in said.lines:
        log(WARNING, "%s: %s", site.path, printable(line))
    return said.description.flatten()


def of_arrays(x: np.ndarray, y: np.ndarray, spec: Spec, least: int) -> Description:
    """What a site says of examples in the stored form, as those of a part of a task's data are."""
    if len(y) < least:
        return Description(least, few=True)
    x, spec = without_indicators(x, spec), without_rules(spec)
    marks = np.arange(len(y), dtype=np.uint64)[:, None].view(np.uint8)
    examples, seen = ReaderResult(x, y, marks, marks), [Seen(column) for column in asked_of(spec)]
    rows, told = _answers(examples, spec, seen, least)
    return Description(least, False, rows, True, 0, tuple(_with_moments(told, examples, spec, seen, least)))


def without_rules(spec: Spec) -> Spec:
    """The form of the same examples without what replaces a missing cell, and without indicators.

    Nothing of a description depends on it, and what is kept of a column has the column's name alone.
    """
    reading = spec.reading
    if not reading.columns:
        return spec
    shape = (spec.inputs.shape[0] - len(reading.indicators),)
    rule = MEAN if reading.may_be_missing else ERROR
    return replace(
        spec,
        inputs=replace(spec.inputs, shape=shape),
        reading=replace(reading, missing=rule, missing_of=()),
        fill=(),
    )


# ---------------------------------------------------------------- of columns


def _answers(examples: ReaderResult, spec: Spec, seen: Sequence[Seen], least: int) -> tuple[int, list[Told]]:
    """The number of rows, and what may be said of each column, without its moments. Of an id, one row counts."""
    _, first = (
        np.unique(examples.rows, axis=0, return_index=True)
        if _by_id(examples)
        else (0, np.arange(len(examples.y)))
    )
    values = _values(examples.x[first], examples.y[first], spec)
    return len(first), [_told(one, array, least) for one, array in zip(seen, values, strict=True)]


def _by_id(examples: ReaderResult) -> bool:
    return not np.array_equal(examples.rows, examples.contents)


def _told(seen: Seen, values: np.ndarray | None, least: int) -> Told:
    if seen.state != PRESENT or values is None:
        return Told(seen.state)
    if not seen.asked.categories:
        return of_numbers(values, least)
    order = _order(seen.asked)
    ranks = np.append(np.argsort(order), -1)  # the last one for rows without a category
    told = of_categories(ranks[values], len(order), least)
    return replace(told, counts=tuple(told.counts[ranks[at]] for at in range(len(order))) if told.counts else ())


def _order(asked: DescribedColumn) -> np.ndarray:
    """The categories in an order of their own, so that which counts are not said does not depend on a message."""
    return np.array(sorted(range(len(asked.categories)), key=lambda at: alike(asked.categories[at])), np.int64)


def _values(x: np.ndarray, y: np.ndarray, spec: Spec) -> list[np.ndarray | None]:
    """The values of each column of `asked_of`: float (n,), or the numbers of categories, -1 where none is."""
    inputs, start = [column for column in asked_of(spec) if not column.predicted], 0
    values: list[np.ndarray | None] = []
    for column in inputs:
        block = x[:, start : start + (len(column.categories) or 1)] if column.binned else None
        start += len(column.categories) or 1
        if block is None:
            values.append(None)
        elif column.categories:
            values.append(np.where((block == 1).any(axis=1), np.argmax(block == 1, axis=1), -1))
        else:
            values.append(block[:, 0].astype(np.float64))
    if spec.target is Target.CLASS:
        return [*values, y.astype(np.int64)]
    if spec.target is Target.LABELS:
        return [*values, *np.where(y > 1, -1, y.astype(np.int64)).T]
    if spec.target is Target.SURVIVAL:
        return [*values, y[:, 0].astype(np.float64), np.nan_to_num(y[:, 1], nan=-1).astype(np.int64)]
    return [*values, *y.astype(np.float64).T]


# ---------------------------------------------------------------- kept


def _repeated(
    folder: Path, examples: ReaderResult, spec: Spec, seen: Sequence[Seen], least: int
) -> tuple[int, list[Told]]:
    """The same, of rows that were described before where fewer than `least` of them differ
    (`column_statistics.py`).

    A column of which only a few values have come or gone is described as before, too.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    examples, by_id = column_statistics.with_ids(examples)
    now, sets = column_statistics.in_order(examples.contents), column_statistics.sets(folder)
    distance = {entry.place: column_statistics.distance_of(now, entry.rows, by_id) for entry in sets}
    near = sorted(
        (entry for entry in sets if distance[entry.place] < least), key=lambda entry: distance[entry.place]
    )
    keys = [_key(column) for column in seen]
    said = next((answers for entry in near if (answers := _read(entry.place)).keys() >= {*keys, ROWS}), None)
    if said is None:
        whole = (
            (entry, rows)
            for entry in near
            if (rows := column_statistics.of_rows(examples, entry.rows)) is not None
        )
        of, rows = next(whole, None) or (column_statistics.made(folder, now, sets), examples)
        count, told = _answers(rows, spec, seen, least)
        before = [_read(entry.place) for entry in sets]
        new = {
            key: _unless_close(key, to_json(column), before, least) for key, column in zip(keys, told, strict=True)
        }
        said = {ROWS: count, **new}
        atomic.write(of.place / DESCRIBED, json.dumps(_read(of.place) | said, sort_keys=True).encode())
    else:
        for entry in near:
            os.utime(entry.place)
    return said[ROWS], [from_json(said[key]) for key in keys]


ROWS = ""
"""The key of the number of rows; no column has it."""


def _key(seen: Seen) -> str:
    """The question about a column, as a text."""
    asked = seen.asked
    return json.dumps([asked.name, list(asked.categories), asked.predicted, seen.state])


def _read(place: Path) -> dict[str, Any]:
    path = place / DESCRIBED
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _unless_close(key: str, told: Mapping[str, Any], before: Sequence[Mapping[str, Any]], least: int) -> Any:
    """What is said of a column, or what was said when it had only a few values more or less."""
    for answers in before:
        if key in answers and 0 < abs(_size(answers[key]) - _size(told)) < least:
            return answers[key]
    return told


def _size(told: Mapping[str, Any]) -> int:
    return sum(max(count, 0) for count in told["counts"])


# ---------------------------------------------------------------- with what is known otherwise


def _with_moments(
    told: Sequence[Told],
    examples: ReaderResult,
    spec: Spec,
    seen: Sequence[Seen],
    least: int,
    kept_at: tuple[SiteData, Path | None] | None = None,
) -> list[Told]:
    """The same with mean and deviation of columns of numbers and of channels, as the roll call of a run says them.

    `kept_at`: the site, and where it keeps what it said of its columns. Recordings say none: they would say what
    the longest one contains.
    """
    if spec.inputs.kind not in AXES:
        return list(told)
    examples, spec, measured = _there(examples, spec, seen)
    if not measured:
        return list(told)
    site, folder = kept_at or (None, None)
    if site is not None and folder is not None:
        report = column_statistics.report(folder, examples, spec, form(site, spec), least)
        moments = None if report is None else report.moments
    else:
        moments = column_statistics.said(of_examples(examples.x, examples.y, spec), examples, spec, least)
    result, start = list(told), 0
    for at in measured:
        if moments is not None and not seen[at].asked.categories and moments.count[start] > 0:
            std = float(np.sqrt(moments.squares[start] / moments.count[start]))
            result[at] = replace(told[at], mean=float(moments.mean[start]), std=std)
        start += len(seen[at].asked.categories) or 1
    return result


def _there(examples: ReaderResult, spec: Spec, seen: Sequence[Seen]) -> tuple[ReaderResult, Spec, list[int]]:
    """The examples with the columns alone that the site has, and the places of those in `seen`.

    What is kept of a column that a site does not have, or not like this, would be said in a run that names it
    rightly.
    """
    inputs = [at for at, column in enumerate(seen) if not column.asked.predicted]
    targets = [at for at, column in enumerate(seen) if column.asked.predicted]
    measured = [at for at in inputs if seen[at].state == PRESENT]
    if not measured:
        return examples, spec, []
    if spec.target is not Target.VALUES:
        targets = []
    elif any(seen[at].state != PRESENT for at in targets):
        targets, spec = [], replace(spec, target=Target.CLASS)
    if len(measured) < len(inputs):  # of a table with names
        widths = [len(seen[at].asked.categories) or 1 for at in inputs]
        columns = np.repeat([seen[at].state == PRESENT for at in inputs], widths)
        named = tuple(text for text, at in zip(spec.reading.columns, inputs, strict=True) if at in measured)
        examples = replace(examples, x=examples.x[:, columns])
        inputs_of = Inputs(Kind.TABLE, (int(columns.sum()),))
        spec = replace(spec, inputs=inputs_of, reading=replace(spec.reading, columns=named))
    return examples, spec, [*measured, *targets]


def _with_unknown(told: Told, seen: Seen, least: int) -> Told:
    """The same with the number of categories that the message does not name, unless only a few rows have them."""
    if not seen.unknown:
        return told
    return replace(told, unknown=len(seen.unknown) if sum(seen.unknown.values()) >= least else BELOW)
