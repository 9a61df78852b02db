"""A table in a CSV file, whose first row has the names of the columns unless the site gives them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from ....errors import DataError
from ...data_toml.file_form import COMMA, FileForm
from ...forms import csv_rows
from .number_formats import with_point
from .rows import RowDigests, Rows, in_chunks, positions

SUFFIXES = (".csv", ".csv.gz")
COMMON = FileForm()


def read(path: Path, columns: Sequence[str], form: FileForm = COMMON) -> Iterator[Rows]:
    """The rows with these columns. Blanks at the ends of the names of columns do not count.

    Raises DataError, with the file and the line, for a file without such a header, for a row of another length and
    for a file that is damaged.
    """
    names, rows = _opened(path, form)
    if not form.header and not set(columns) <= set(names):
        _check_header(path, names)
    wanted, digests = positions(path, names, columns), RowDigests(names)
    for chunk in in_chunks(rows):
        for line, row in chunk:
            if len(row) != len(names):
                raise DataError(
                    f"{path}, line {line} has {len(row)} cells, but the header has {len(names)} columns"
                )
        cells = {name: [row[at] for _, row in chunk] for name, at in zip(columns, wanted, strict=True)}
        yield Rows(path, "line", [line for line, _ in chunk], cells, [digests.of(row) for _, row in chunk])


def _check_header(path: Path, names: Sequence[str]) -> None:
    """Raises DataError if the first row has an example's numbers and not names; its cells are not shown."""
    numbers = sum(with_point(name) is not None or with_point(name, COMMA) is not None for name in names)
    if 2 * numbers >= len(names):
        raise DataError(
            f"{path} seems to have no header: {numbers} of the {len(names)} cells of its first row are numbers, "
            "and no names of columns; name the columns in its first row, or in [file] of the data file, as in "
            f'header = ["age", "sex"], with {len(names)} names'
        )


def columns_in(path: Path, form: FileForm = COMMON) -> list[str]:
    """The names of all columns. Raises DataError as `read` does."""
    return _opened(path, form)[0]


def _opened(path: Path, form: FileForm) -> tuple[list[str], Iterator[tuple[int, list[str]]]]:
    """The names of the columns, and the rows below them."""
    rows = csv_rows.rows(
        path, "write the file again, as UTF-8, or say its encoding in the data file", separator=form.separator,
        encoding=form.encoding,
    )  # fmt: skip
    _, header = (0, list(form.header)) if form.header else next(rows, (0, None))
    if header is None:
        raise DataError(f"{path} is empty: its first row must have the names of the columns")
    return [name.strip() for name in header], rows
