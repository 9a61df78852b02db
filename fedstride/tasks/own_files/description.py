"""What a site says of its own data, or of a part of a task's: read, counted, and kept until enough rows differ."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...errors import printable
from ...flower.logs import to_site
from ..data_toml.site import SiteData, read_form_of
from ..inputs import Inputs, Kind
from ..missing import ERROR, MEAN
from ..reading import PREPARED_VARIABLE
from ..spec import Spec, Target
from ..statistics.description import (
    BELOW,
    MIN_ROWS,
    PRESENT,
    Description,
    Told,
    asked_of,
)
from ..statistics.moments import AXES
from ..statistics.over_sites import measured as without_indicators
from ..statistics.over_sites import of_examples
from . import column_statistics, column_values, kept_descriptions, small_groups
from .checks import quoted
from .loading import examples_in, files, form, resolved
from .questions import Asker
from .reader_result import ReaderResult
from .tables import counted_faults
from .tables.counted_faults import Seen

ANSWER = "description.json"
"""The file of an answer that a node has made, in the folder that the app of the message gets."""


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
    filled = [name for name, rule in spec.reading.rules.items() if rule.fill == ERROR]
    spec = without_rules(spec)
    those = files(site, spec)
    if spec.inputs.kind is Kind.TABLE and site.is_table:
        read = counted_faults.read(site, spec, filled)
        examples, seen, unnamed, lines, readable = (
            read.examples,
            read.seen,
            read.unnamed,
            read.lines,
            read.readable,
        )
    else:
        site.check(spec)
        examples = examples_in(site, those, spec)
        seen, unnamed, lines, readable = [Seen(column) for column in asked_of(spec)], 0, (), True
    if len(np.unique(examples.rows, axis=0)) < least:
        return Said(Description(least, few=True), lines)
    asker = Asker(site, least)
    if statistics is None:
        rows, told = column_values.answers(examples, spec, seen, least)
    else:
        rows, told, waiting = kept_descriptions.repeated(statistics, examples, spec, seen, asker)
        lines = [*lines, *(_waits(name, least) for name in waiting)]
    columns = (
        told if site.is_of_any_form else _with_moments(told, examples, spec, seen, least, (asker, statistics))
    )
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
        to_site(str(path), printable(line))
    return said.description.flatten()


def of_arrays(x: np.ndarray, y: np.ndarray, spec: Spec, least: int) -> Description:
    """What a site says of examples in the stored form, as those of a part of a task's data are."""
    if len(y) < least:
        return Description(least, few=True)
    x, spec = without_indicators(x, spec), without_rules(spec)
    marks = np.arange(len(y), dtype=np.uint64)[:, None].view(np.uint8)
    examples, seen = ReaderResult(x, y, marks, marks), [Seen(column) for column in asked_of(spec)]
    rows, told = column_values.answers(examples, spec, seen, least)
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


# ---------------------------------------------------------------- with what is known otherwise


def _with_moments(
    told: Sequence[Told],
    examples: ReaderResult,
    spec: Spec,
    seen: Sequence[Seen],
    least: int,
    kept_at: tuple[Asker, Path | None] | None = None,
) -> list[Told]:
    """The same with mean and deviation of columns of numbers and of channels, as the roll call of a run says them.

    `kept_at`: where a site keeps what it said of its columns. Recordings say none: they would say what the longest
    one contains.
    """
    if spec.inputs.kind not in AXES:
        return list(told)
    examples, spec, measured = _there(examples, spec, seen)
    if not measured:
        return list(told)
    asker, folder = kept_at or (None, None)
    if asker is not None and folder is not None:
        report = column_statistics.report(folder, examples, spec, form(asker.site, spec), asker)
        moments = None if report is None else report.moments
    else:
        moments = small_groups.said(of_examples(examples.x, examples.y, spec), examples, spec, least)
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


def _waits(name: str, least: int) -> str:
    """Why nothing is said of a column that the site reads in another way than before."""
    return (
        f"column {quoted(name)}: nothing is said of its values until {least} rows have changed since they were "
        "described: the data file or the policy has changed since then, and so have some rows"
    )


def _with_unknown(told: Told, seen: Seen, least: int) -> Told:
    """The same with the number of categories that the message does not name, unless only a few rows have them."""
    if not seen.unknown:
        return told
    return replace(told, unknown=len(seen.unknown) if sum(seen.unknown.values()) >= least else BELOW)
