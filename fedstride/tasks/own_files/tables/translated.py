"""The cells of a site's table as the task writes them: its names, words, numbers and units (`file_form.py`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path

from ...data_toml.file_form import POINT, YEAR, ColumnInFile, FileForm
from ...forms.columns import alike
from .cells import is_empty
from .number_formats import unlike_the_date, unlike_the_file, with_point
from .rows import Rows

Read = Callable[[Path, Sequence[str]], Iterator[Rows]]
"""(file, names of columns in it) -> the rows with these columns."""


def translated(
    read: Read, path: Path, wanted: Sequence[str], form: FileForm, numbers: Collection[str]
) -> Iterator[Rows]:
    """The rows with the wanted columns of the task, of which `numbers` are those of numbers.

    What cannot be translated stays a text that is no number and no word of the task, so whoever reads the cells
    says of one that it is not allowed. Columns that the site does not have are empty.
    """
    named = {column: form.of(column).name or column for column in wanted if not form.of(column).absent}
    for rows in read(path, list(dict.fromkeys(named.values()))):
        cells = {
            column: as_task(rows.cells[named[column]], form, form.of(column), is_number=column in numbers)
            if column in named
            else [""] * len(rows)
            for column in wanted
        }
        yield replace(rows, cells=cells)


def as_task(cells: Sequence[str], form: FileForm, origin: ColumnInFile, *, is_number: bool) -> Sequence[str]:
    """The cells of one column as the task writes them. `is_number`: whether it is one of numbers."""
    words = {alike(old): new for old, new in origin.words}
    missing = {alike(text) for text in (*form.missing, *origin.missing)}
    changes = is_number and _changes(form, origin)
    if not words and not missing and not changes:
        return cells

    def one(cell: str) -> str:
        if (word := words.get(alike(cell))) is not None:
            return word
        if alike(cell) in missing:
            return ""
        if not changes or is_empty(cell):
            return cell
        return _from_date(cell, origin) if origin.date else _number(cell, form, origin)

    return [one(cell) for cell in cells]


def _changes(form: FileForm, origin: ColumnInFile) -> bool:
    """Whether numbers or dates are written in another way than the task's."""
    return bool(origin.date or origin.is_scaled or origin.unit or form.thousands or form.decimal != POINT)


def _number(cell: str, form: FileForm, origin: ColumnInFile) -> str:
    """With a decimal point, without separators of thousands, in the task's unit; else a text that is no number."""
    text = with_point(cell, form.decimal, form.thousands, origin.unit)
    if text is None:
        return unlike_the_file(cell, form.decimal, form.thousands)
    if not origin.is_scaled:
        return text
    value = float(text) * origin.factor + origin.offset
    return repr(value) if math.isfinite(value) else cell


def _from_date(cell: str, origin: ColumnInFile) -> str:
    """A date as the days since another one, or the years until one; else a text that is no number."""
    try:
        day = datetime.strptime(cell.strip(), origin.date).date()
    except ValueError:
        return unlike_the_date(cell, origin.date)
    if origin.since:
        return str((day - date.fromisoformat(origin.since)).days)
    return repr((date.fromisoformat(origin.until) - day).days / YEAR)
