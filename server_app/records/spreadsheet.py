"""Text in CSV files that a spreadsheet must not execute: names of metrics can come from clients."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Sequence
from typing import Any

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
