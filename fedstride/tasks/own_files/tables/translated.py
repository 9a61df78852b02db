"""The cells of a site's table as the task writes them: its names, words, numbers and units (`file_form.py`)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np

from ...data_toml.file_form import POINT, YEAR, ColumnInFile, FileForm
from ...forms.columns import alike, composed
from .cells import is_empty
from .number_formats import unlike_the_date, unlike_the_file, with_point
from .rows import Rows

Read = Callable[[Path, Sequence[str]], Iterator[Rows]]
"""(file, names of columns in it) -> the rows with these columns."""

RULE = "codes are numbers as the file writes them"
"""The rule of `as_task`, for the key of a cache entry."""

CENTURY = 100
SHORT_YEAR, FRACTION = "%y", ".%f"

NEARLY = Decimal("2e-16")
"""Of its size, a converted number may be away from a whole one: a factor as 1/12 has 16 digits."""


def translated(
    read: Read, path: Path, wanted: Sequence[str], form: FileForm, numbers: Collection[str]
) -> Iterator[Rows]:
    """The rows with the wanted columns of the task, of which `numbers` are those of numbers.

    What cannot be translated stays a text that is no number and no word of the task, so whoever reads the cells
    says of one that it is not allowed. Columns that the site does not have are empty.
    """
    named = {column: form.of(column).name or column for column in wanted if not form.of(column).absent}
    for rows in read(path, list(dict.fromkeys(named.values()))):
        written = {column: rows.cells[name] for column, name in named.items()}
        stored = {column: rows.stored[name] for column, name in named.items() if name in rows.stored}
        cells = {
            column: as_task(
                written[column], form, form.of(column), is_number=column in numbers, stored=stored.get(column)
            )
            if column in named
            else [""] * len(rows)
            for column in wanted
        }
        yield replace(rows, cells=cells, stored=stored, written=written)


def as_task(
    cells: Sequence[str],
    form: FileForm,
    origin: ColumnInFile,
    *,
    is_number: bool,
    stored: type[np.generic] | None = None,
) -> Sequence[str]:
    """The cells of one column as the task writes them. `is_number`: whether it is one of numbers.

    `stored`: the type of a column that the file stores as numbers, so how the file writes them does not matter.
    """
    forms = [form] if stored is None else [replace(form, decimal=POINT, thousands=""), form]
    form = forms[0]
    has_points = form.decimal == POINT and form.thousands != POINT
    same = alike if has_points or not is_number else _itself
    words = {same(text): "" for text in (*form.missing, *origin.missing)}
    words |= {same(old): new for old, new in origin.words}
    codes = _codes(words, forms, origin, stored) if is_number and not origin.date else {}
    changes = is_number and _changes(form, origin)
    if not words and not changes:
        return cells

    def one(cell: str) -> str:
        if (word := words.get(same(cell))) is not None:
            return word
        if codes and (word := codes.get(_code(_plain(cell, form, origin), stored))) is not None:
            return word
        if not changes or is_empty(cell):
            return cell
        return _from_date(cell, origin) if origin.date else _number(cell, form, origin)

    return [one(cell) for cell in cells]


def _itself(text: str) -> str:
    """The text without blanks at its ends: where a point is no decimal point, `9.000` is not the number 9."""
    return composed(text.strip())


def _codes(
    words: dict[str, str], forms: Sequence[FileForm], origin: ColumnInFile, stored: type[np.generic] | None
) -> dict[float | Decimal | None, str]:
    """The words that are numbers, as numbers: a code `0` is also written `0,0`, `-09` or `0 mg`.

    `forms`: how they may be written; the first one that fits.
    """
    plain = {old: next(filter(None, (_plain(old, form, origin) for form in forms)), None) for old in words}
    codes = {_code(plain[old], stored): new for old, new in words.items()}
    return {code: new for code, new in codes.items() if code is not None}


def _code(number: str | None, stored: type[np.generic] | None) -> float | Decimal | None:
    """A number to compare with others: exact, or as the type of a column has it."""
    if number is None:
        return None
    if stored is np.float32 or stored is np.float16:
        with np.errstate(over="ignore"):
            return float(stored(float(number)))
    try:
        return Decimal(number)
    except ArithmeticError:  # an exponent of many digits: no code has one
        return None


def _changes(form: FileForm, origin: ColumnInFile) -> bool:
    """Whether numbers or dates are written in another way than the task's."""
    return bool(origin.date or origin.is_scaled or origin.unit or form.thousands or form.decimal != POINT)


def _plain(cell: str, form: FileForm, origin: ColumnInFile) -> str | None:
    """The number as it is in the file, with a decimal point; None if the cell is none."""
    return with_point(cell, form.decimal, form.thousands, origin.unit)


def _number(cell: str, form: FileForm, origin: ColumnInFile) -> str:
    """With a decimal point, without separators of thousands, in the task's unit; else a text that is no number."""
    text = _plain(cell, form, origin)
    if text is None:
        return unlike_the_file(cell, form.decimal, form.thousands)
    return _scaled(text, origin) if origin.is_scaled else text


def _scaled(text: str, origin: ColumnInFile) -> str:
    """In the task's unit: computed from the digits as they are written, so 1.001 times 1000 is 1001."""
    try:
        value = Decimal(text) * Decimal(repr(origin.factor)) + Decimal(repr(origin.offset))
        whole = round(value) if abs(value) < 10**15 else value
    except ArithmeticError:  # beyond all floats
        return "inf"
    return repr(float(whole if abs(value - whole) <= abs(value) * NEARLY else value))


def _from_date(cell: str, origin: ColumnInFile) -> str:
    """A date as the days since another one, or the years until one; else a text that is no number."""
    day = _day(cell.strip(), origin.date) or _day(cell.strip(), origin.date.replace(FRACTION, ""))
    if day is None:
        return unlike_the_date(cell, origin.date)
    if origin.since:
        return str((day - date.fromisoformat(origin.since)).days)
    until = date.fromisoformat(origin.until)
    try:
        while SHORT_YEAR in origin.date and day > until:  # somebody was born in the century before
            day = day.replace(year=day.year - CENTURY)
    except ValueError:  # 29 February in a year that has none
        return unlike_the_date(cell, origin.date)
    return repr((until - day).days / YEAR)


def _day(text: str, form: str) -> date | None:
    try:
        return datetime.strptime(text, form).date()
    except ValueError:
        return None
