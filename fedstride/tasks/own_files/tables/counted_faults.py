"""Reads a site's table for a description: cells that cannot be read are counted, and columns may be missing.

For training, `table_file.py` refuses such a table. Here each fault is a line for the site's own log.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ....errors import ConfigError, DataError, counted, require
from ...data_toml.dictionary import AllowedCells
from ...data_toml.file_form import FileForm
from ...data_toml.site import SiteData
from ...evaluation.holdout import stacked
from ...forms.columns import Column, alike
from ...spec import Spec, Target
from ...statistics.description import LACKS, OTHER, PRESENT, DescribedColumn, asked_of
from ..checks import quoted
from ..reader_result import ReaderResult
from . import cells, table_file
from .rows import Rows

MOST_NAMED = 20
"""Categories or columns that a line names."""


@dataclass
class Seen:
    """What was seen of one column: `state` as in `Told`; the categories that the message does not name.

    `values` are numbers, or the numbers of categories: NaN where a cell is empty or cannot be read.
    """

    asked: DescribedColumn
    state: int = PRESENT
    values: list[np.ndarray] = field(default_factory=list)
    unknown: dict[str, int] = field(default_factory=dict)  # rows with each
    unreadable: int = 0  # cells that are neither empty, nor a value that is allowed, nor a category
    first: str = ""  # where the first of them is, and why
    empty: int = 0  # cells without a value where a run needs one
    first_empty: str = ""  # where the first of them is


@dataclass(frozen=True)
class Tolerated:
    """A site's table: its examples as far as they can be read, what was seen of columns, and lines for its log.

    In `examples`, a number that is missing is NaN, and so is each number of a category; of a class that is missing
    it is -1, of a label 255. `unnamed`: columns that the message does not name. `refused`: whether a run does not
    read this table, whatever its cells.
    """

    examples: ReaderResult
    seen: Sequence[Seen]
    unnamed: int
    lines: Sequence[str]
    refused: bool

    @property
    def readable(self) -> bool:
        """Whether a run can read the table, and every cell of it."""
        return not self.refused and not any(
            column.unreadable or column.unknown or column.empty for column in self.seen
        )


def read(site: SiteData, spec: Spec, filled: Collection[str] = ()) -> Tolerated:
    """The examples in the rows of a table. `filled`: columns of examples that may not have an empty cell.

    Raises DataError for a file that cannot be read as a table at all, or has no rows, and ConfigError if the task
    does not name its columns.
    """
    table_file.inputs_of(spec)  # which refuses a task without names
    require(spec.scale == 1.0, "spec.scale", spec.scale, "1 for a table")
    names = table_file.columns_in(site)
    asked = [column for column in asked_of(spec) if not column.predicted]
    asked += [DescribedColumn(name, column.categories, True) for name, column in _targets(spec)]
    seen = [Seen(column, _state(column, site, spec, names)) for column in asked]
    there = [column for column in seen if column.state == PRESENT]
    wanted = list(dict.fromkeys([*(column.asked.name for column in there), *([site.id] if site.id else [])]))
    said = {} if site.dictionary is None else site.dictionary.columns
    rows: list[np.ndarray] = []
    contents: list[np.ndarray] = []
    conversions = [_conversion(column.asked, spec, said) for column in there]
    for chunk in table_file.rows_of(site, wanted, table_file.numbers(spec)):
        for column, conversion in zip(there, conversions, strict=True):
            _convert(column, chunk, conversion, column.asked.predicted or column.asked.name in filled)
        contents.append(stacked(chunk.digests))
        rows.append(stacked(table_file.ids_of(chunk, site.id)) if site.id else contents[-1])
    if not rows:
        raise DataError(f"{site.path} contains no examples: it has no rows")
    together = np.concatenate(rows)
    examples = ReaderResult(*_arrays(seen, spec, len(together)), together, np.concatenate(contents))
    unnamed = _unnamed(site, names, [column.asked.name for column in seen])
    refusal = [] if len(there) == len(seen) else _refusal(site, spec, filled)
    lines = [*refusal, *_lines(seen), *_line_of_columns(unnamed)]
    return Tolerated(examples, seen, _that_runs_may_name(site, unnamed), lines, bool(refusal))


def _refusal(site: SiteData, spec: Spec, filled: Collection[str]) -> list[str]:
    """Why a run does not read this table, in the words of the run."""
    wanted = [*table_file.inputs_of(spec), *spec.reading.targets]
    try:
        site.check(spec)
        next(table_file.rows_of(site, wanted, ()), None)
    except (ConfigError, DataError) as error:
        return [f"a run cannot read this table: {error}"]
    for name in wanted:
        if site.form.of(name).absent and (name in filled or name in spec.reading.targets):
            then = "" if name in spec.reading.targets else "; task.missing can say what takes their place"
            said = f"the data file says that column {quoted(name)} is absent, and the run needs its values{then}"
            return [f"a run cannot read this table: {said}"]
    return []


def _targets(spec: Spec) -> list[tuple[str, DescribedColumn]]:
    """The columns to predict, by the names that they have in a table."""
    asked = [column for column in asked_of(spec) if column.predicted]
    return list(zip(spec.reading.targets, asked, strict=True))


def _state(asked: DescribedColumn, site: SiteData, spec: Spec, names: Sequence[str]) -> int:
    """Whether the site has this column, by its own file and the header of its table."""
    dictionary, origin = site.dictionary, site.form.of(asked.name)
    if dictionary is not None and asked.name not in dictionary.columns:
        return LACKS
    if origin.absent or (origin.name or asked.name) not in names:
        return LACKS
    column = Column(asked.name, asked.categories)
    if dictionary is not None and not dictionary.has(column, spec, predicted=asked.predicted):
        return OTHER
    return PRESENT


def _conversion(
    column: DescribedColumn, spec: Spec, said: Mapping[str, AllowedCells]
) -> tuple[cells.Convert, bool]:
    """What a cell of the column becomes, and whether its cells are words that the run names."""
    if column.predicted:
        converts = dict(zip(spec.reading.targets, table_file.converts_of(spec), strict=True))
        is_word = spec.target is Target.CLASS and bool(spec.names)
        return cells.within(converts[column.name], said.get(column.name)), is_word
    if column.categories:
        return cells.class_of(column.categories, len(column.categories)), True
    return cells.within(cells.number, said.get(column.name)), False


def _convert(seen: Seen, rows: Rows, conversion: tuple[cells.Convert, bool], is_filled: bool) -> None:
    """Add the values of a column in these rows. `is_filled`: whether a run refuses an empty cell of it."""
    column, (convert, words) = seen.asked, conversion
    values = np.full(len(rows), np.nan)
    for position, cell in enumerate(rows.cells[column.name]):
        text = cell.strip()
        try:
            values[position] = convert(text)
        except cells.CellError as error:
            if cells.is_empty(text):
                if is_filled:
                    seen.empty += 1
                    seen.first_empty = seen.first_empty or str(rows.error(position, column.name, "it is empty"))
                continue
            if words:
                seen.unknown[alike(text)] = seen.unknown.get(alike(text), 0) + 1
            else:
                seen.unreadable += 1
                seen.first = seen.first or str(rows.error(position, column.name, str(error)))
    seen.values.append(values)


def _arrays(seen: Sequence[Seen], spec: Spec, count: int) -> tuple[np.ndarray, np.ndarray]:
    """x and y, with marks where there is no value."""
    nothing = np.full(count, np.nan)
    blocks, targets = [], []
    for column in seen:
        values = np.concatenate(column.values) if column.values else nothing
        if column.asked.predicted:
            targets.append(values)
        elif column.asked.categories:
            places = np.arange(len(column.asked.categories))
            blocks.append(np.where(np.isnan(values)[:, None], np.nan, values[:, None] == places))
        else:
            blocks.append(values[:, None])
    x = np.concatenate(blocks, axis=1).astype(np.float32)
    y = np.stack(targets, axis=1)
    if spec.target is Target.CLASS:
        return x, np.nan_to_num(y[:, 0], nan=-1).astype(np.int64)
    return x, np.nan_to_num(y, nan=255).astype(np.uint8) if spec.target is Target.LABELS else y.astype(np.float32)


def _unnamed(site: SiteData, names: Collection[str], named: Collection[str]) -> list[str]:
    """The columns of the file that the message does not name, and that is not the one of ids."""
    taken = {_in_file(site.form, name) for name in (*named, *([site.id] if site.id else []))}
    return [name for name in names if name not in taken]


def _that_runs_may_name(site: SiteData, names: Collection[str]) -> int:
    """How many of these columns of the file are in the data file: others do not exist for runs."""
    if site.dictionary is None:
        return len(names)
    return len({_in_file(site.form, name) for name in site.dictionary.columns}.intersection(names))


def _in_file(form: FileForm, column: str) -> str:
    return form.of(column).name or column


def _lines(seen: Sequence[Seen]) -> list[str]:
    """One line for the site's log for each fault of a column."""
    lines = []
    for column in seen:
        name = quoted(column.asked.name)
        if column.state != PRESENT:
            what = "is not in this site's table" if column.state == LACKS else "has other cells than the run says"
            lines.append(f"column {name} {what}")
        if column.unreadable:
            lines.append(
                f"column {name}: {counted(column.unreadable, 'cell')} cannot be read; the first: {column.first}"
            )
        if column.empty:
            then = "" if column.asked.predicted else ", or say in task.missing what takes their place"
            lines.append(
                f"column {name}: {counted(column.empty, 'cell')} without a value, which a run refuses: fill them "
                f"or delete the rows{then}; the first: {column.first_empty}"
            )
        if column.unknown:
            listed = _listed([f"{quoted(word)} ({counted(rows, 'row')})" for word, rows in column.unknown.items()])
            lines.append(f"column {name}: categories that the run does not name: {listed}")
    return lines


def _line_of_columns(names: Sequence[str]) -> list[str]:
    listed = _listed([quoted(name) for name in names])
    return [f"columns that the run does not name: {listed}"] if names else []


def _listed(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return ", ".join(texts[:MOST_NAMED]) + more
