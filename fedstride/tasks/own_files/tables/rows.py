"""Rows of a table as text, some thousands at a time, with their places in the file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ....errors import DataError, nearest
from ...evaluation.holdout import digest_of
from ...forms.columns import alike, composed
from ..checks import quoted

SEPARATORS = ";\t|,"
"""The usual ones."""

CHUNK = 4096  # rows that are in memory as text at a time


@dataclass(frozen=True)
class Rows:
    """Some rows: the cells of each wanted column, and for each row its number in the file; `unit` says of what.

    `digests`: of each whole row, whatever columns are wanted. `stored`: the types of columns that the file stores
    as numbers; the others are text. `written`: the cells as they are in the file, where `cells` are translated.
    """

    source: Path
    unit: str  # line or row
    numbers: Sequence[int]
    cells: Mapping[str, Sequence[str]]
    digests: Sequence[bytes]
    stored: Mapping[str, type[np.generic]] = field(default_factory=dict)
    written: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.numbers)

    def error(self, position: int, column: str, what: str) -> DataError:
        """The error for a cell of the row at this position, with what the file has there if it is translated."""
        where = f"{self.source}, {self.unit} {self.numbers[position]}, column {quoted(column)}"
        return DataError(f"{where}: {what}{self._in_the_file(position, column, what)}")

    def _in_the_file(self, position: int, column: str, what: str) -> str:
        cell = self.cells[column][position].strip() if column in self.cells else ""
        before = self.written[column][position].strip() if column in self.written else cell
        is_shown = quoted(before) in what or f"{before} (in this file" in what
        as_it_was = "" if before == cell or is_shown else f"; the file has {quoted(before)} there"
        of_bool = self.stored.get(column) is np.bool_
        return as_it_was + ("; true is 1 and false is 0 in this column of Parquet" if of_bool else "")


IN_A_FILE = (
    ": add it, or say in [columns] of a data file what it is called here ({ from = 'NAME' }), or that this table "
    "does not have it ({ absent = true })"
)
"""What to do about a column that a file does not have."""

IN_MEMORY = ": add it, or rename a column; where the task takes empty cells, None fills it"
"""What to do about a column that a table in memory does not have."""


def positions(source: Path, columns: Sequence[str], wanted: Sequence[str], then: str = IN_A_FILE) -> list[int]:
    """Where the wanted columns are among those of the file.

    Raises DataError if one is there twice, or if one is missing, with `then`, what to do about it.
    """
    columns, wanted = ([composed(name) for name in names] for names in (columns, wanted))
    times, places = Counter(columns), {name: at for at, name in enumerate(columns)}
    for name in wanted:
        if times[name] > 1:
            raise DataError(f"{source} has {times[name]} columns {quoted(name)}; give each column another name")
        if not times[name]:
            raise _missing(source, columns, name, then)
    return [places[name] for name in wanted]


def toml(mark: str) -> str:
    """A separator as a data file says it."""
    return '"\\t"' if mark == "\t" else f'"{mark}"'


def _missing(source: Path, columns: Sequence[str], name: str, then: str) -> DataError:
    close = [other for other in columns if other.casefold() == name.casefold()] or nearest(name, columns, 1)
    hint = f" (did you mean {quoted(close[0])}?)" if close else ""
    if len(columns) == 1 and (other := next((mark for mark in SEPARATORS if mark in columns[0]), None)):
        said = "no comma but" if other != "," else "not the separator that the data file says, but"
        hint = (
            f": its header has {said} {other!r}; separate columns by commas, or write separator = {toml(other)} "
            "in [file] of the data file"
        )
        if other == ",":
            hint = hint.replace("separate columns by commas, or write", "remove separator there, or write")
        then = ""
    return DataError(
        f"{source} has no column {quoted(name)}{hint}{then}; its columns are {quoted(', '.join(columns), 200)}, "
        "and the task chooses them by name"
    )


class RowDigests:
    """The digests of rows with these columns; the order of the columns does not matter."""

    def __init__(self, names: Sequence[str]) -> None:
        self._order = sorted(range(len(names)), key=lambda place: (names[place], place))
        self._names = [names[place] for place in self._order]

    def of(self, cells: Sequence[str]) -> bytes:
        """The digest of a row; blanks at the ends of its cells, and how a number is written, do not matter."""
        parts = (
            part for name, at in zip(self._names, self._order, strict=True) for part in (name, alike(cells[at]))
        )
        return digest_of("\x1f".join(parts).encode("utf-8", "surrogatepass"))


def in_chunks(rows: Iterator[tuple[int, list[str]]]) -> Iterator[list[tuple[int, list[str]]]]:
    """The rows, at most CHUNK at a time."""
    chunk = []
    for row in rows:
        chunk.append(row)
        if len(chunk) == CHUNK:
            yield chunk
            chunk = []
    if chunk:
        yield chunk
