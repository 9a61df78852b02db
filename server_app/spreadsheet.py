"""Text in CSV files that a spreadsheet must not execute: names of metrics can come from clients."""

from __future__ import annotations

import re

FORMULA = re.compile(r"(^|[;,])(?=[=+\-@\uff1d\uff0b\uff0d\uff20])")
"""Where a spreadsheet would begin a formula: at a cell's beginning, also if it separates cells by semicolons."""


def inert(text: str) -> str:
    """The text with an apostrophe before what would be a formula; control characters become `\\x..`."""
    printable = (char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
    return FORMULA.sub(r"\1'", "".join(printable))
