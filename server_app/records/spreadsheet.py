"""The copy of a run's metrics for spreadsheets, with no text that a spreadsheet would execute.

Names of metrics can come from clients.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedstride.files import atomic

from .line_files import LineFile
from .row_values import Row, plain

FORMULA = re.compile(r"(^|[;,])(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet would begin a formula: at a cell's beginning, also if it separates cells by semicolons."""


def inert(text: str) -> str:
    """The text with an apostrophe before what would be a formula; control characters become `\\x..`."""
    printable = (char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return FORMULA.sub(r"\1'", "".join(printable))


def cell(value: Any) -> Any:
    """A plain value as the cell of a CSV file: lists as JSON, nothing for None."""
    if isinstance(value, str):
        return inert(value)
    return json.dumps(value) if isinstance(value, list) else ("" if value is None else value)


def line(cells: Sequence[Any]) -> str:
    """The cells as a line of a CSV file, without its end."""
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(cells)
    return text.getvalue()


class Spreadsheet:
    """A CSV file with a line for each row, and a column for each key of any row."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = LineFile(path)
        self._columns: list[str] = []
        self._count = 0  # rows in the file, or pending

    def write(self, rows: Sequence[Row]) -> None:
        """Append the rows that the file does not have; write the whole file again if one of them has a new column.

        Raises OSError.
        """
        new = rows[self._count :]
        if all(key in self._columns for row in new for key in row):
            self._count = len(rows)
            self._lines.append(_line_of(row, self._columns) for row in new)
            return
        columns = list(dict.fromkeys(key for row in rows for key in row))
        lines = [line([inert(column) for column in columns]), *(_line_of(row, columns) for row in rows)]
        atomic.write(self._path, "".join(text + "\n" for text in lines).encode())
        self._lines, self._columns, self._count = LineFile(self._path), columns, len(rows)


def _line_of(row: Row, columns: Sequence[str]) -> str:
    return line([cell(plain(row.get(column))) for column in columns])
