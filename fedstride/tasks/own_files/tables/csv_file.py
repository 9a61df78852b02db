"""A table in a CSV file, whose first row has the names of the columns unless the site gives them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from ....errors import DataError, counted
from ...data_toml.file_form import COMMA, FileForm
from ...forms import csv_rows
from .number_formats import is_date, with_point
from .rows import SEPARATORS, RowDigests, Rows, in_chunks, positions, toml

SUFFIXES = (".csv", ".csv.gz")
COMMON = FileForm()
SEP = re.compile("sep=(.)", re.IGNORECASE)
"""The first line of a file that Excel made, or that is made for it."""

REPAIR = (
    'write the file again, as UTF-8, or say its encoding in the data file, as in encoding = "latin-1" in [file]'
)


def read(path: Path, columns: Sequence[str], form: FileForm = COMMON) -> Iterator[Rows]:
    """The rows with these columns. Blanks at the ends of the names of columns do not count.

    Raises DataError, with the file and the line, for a file without such a header, for a row of another length and
    for a file that is damaged.
    """
    names, rows = _opened(path, form)
    if not form.header and not set(columns) <= set(names):
        _check_header(path, names, are_wanted=not set(columns).isdisjoint(names))
    wanted, digests = positions(path, names, columns), RowDigests(names)
    for chunk in in_chunks(rows):
        for line, row in chunk:
            if len(row) != len(names):
                raise DataError(
                    f"{path}, line {line} has {counted(len(row), 'cell')}, but the header has "
                    f"{counted(len(names), 'column')}{_of_separator(row, names, form)}"
                )
        cells = {name: [row[at] for _, row in chunk] for name, at in zip(columns, wanted, strict=True)}
        yield Rows(path, "line", [line for line, _ in chunk], cells, [digests.of(row) for _, row in chunk])


def _of_separator(row: Sequence[str], names: Sequence[str], form: FileForm) -> str:
    """What to add about a row, or a header, that is not divided, if another separator would divide it."""
    others = [mark for mark in SEPARATORS if mark != form.separator]
    if len(names) == 1 and (other := next((mark for mark in others if mark in names[0]), None)):
        decimal = f', and decimal = "{COMMA}" if its numbers are as 1{COMMA}5' if form.separator == COMMA else ""
        return (
            f"; its header has no {form.separator!r} but {other!r}: write separator = {toml(other)}{decimal} in "
            "[file] of the data file"
        )
    if len(row) > 1:
        return ""
    fits = next((mark for mark in others if row[0].count(mark) + 1 == len(names)), None)
    if fits is None:
        return f"; the separator is {form.separator!r}: if it is another one, say so in [file] of the data file"
    return (
        f"; it has no {form.separator!r} but {fits!r}: write separator = {toml(fits)} in [file] of the data file"
    )


def _check_header(path: Path, names: Sequence[str], *, are_wanted: bool) -> None:
    """Raises DataError if the first row has an example's numbers and not names; its cells are not shown.

    Without a wanted column, one number or date is enough. `are_wanted`: whether a name is that of such a column.
    """
    values = sum(
        with_point(name) is not None or with_point(name, COMMA) is not None or is_date(name) for name in names
    )
    if 2 * values >= len(names) or (values and not are_wanted):
        raise DataError(
            f"{path} seems to have no header: {values} of the {len(names)} cells of its first row are numbers or "
            "dates, and no names of columns; name the columns in its first row, or in [file] of the data file, as "
            "in "
            f'header = ["age", "sex"], with {len(names)} names'
        )


def _check_separator(path: Path, said: str, form: FileForm) -> None:
    """Raises DataError if the first line of Excel, `sep=;`, names another separator; else it is skipped."""
    if said != form.separator:
        raise DataError(
            f"{path}: its first line says that the separator is {said!r}, but here it is {form.separator!r}: "
            f"write separator = {toml(said)} in [file] of the data file, or remove the line"
        )


def columns_in(path: Path, form: FileForm = COMMON) -> list[str]:
    """The names of all columns. Raises DataError as `read` does."""
    return _opened(path, form)[0]


def _opened(path: Path, form: FileForm) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The names of the columns, and the rows below them."""
    rows = csv_rows.rows(
        path, REPAIR, separator=form.separator, encoding=form.encoding,
    )  # fmt: skip
    first = next(rows, None)
    if first is not None and (said := SEP.fullmatch(form.separator.join(first[1]))):
        _check_separator(path, said[1], form)
    elif first is not None:
        rows = itertools.chain([first], rows)
    _, header = (0, list(form.header)) if form.header else next(rows, (0, None))
    if header is None:
        raise DataError(f"{path} is empty: its first row must have the names of the columns")
    return [name.strip() for name in header], rows
