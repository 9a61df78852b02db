"""The columns of a table by name: how one is written in a setting, and which of an example's numbers it gives."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import ConfigError

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)\.[0-9]*")

ALIKE = "without zeros behind the point"
"""The rule of `alike`, for the key of a cache entry."""


def composed(text: str) -> str:
    """The text with one character for a letter and its accent (NFC), where some systems write two."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def alike(text: str) -> str:
    """One text for all that programs write for one number: `1` for `1.0` and `1.00`, and `1.5` for `1.50`.

    pandas writes the whole numbers of a column with gaps as `1.0`, a database writes `1.00`. Any other text is
    itself, `composed` and without blanks at its ends: `01` is a code, and not the number 1.
    """
    text = composed(text.strip())
    if "." not in text or not _NUMBER.fullmatch(text):
        return text
    shorter = text.rstrip("0").rstrip(".")
    return "0" if shorter == "-0" else shorter


def twice(names: Sequence[str]) -> str | None:
    """The first name that is one of those before it, perhaps as another text of the same number."""
    seen: set[str] = set()
    for name in names:
        if alike(name) in seen:
            return name
        seen.add(alike(name))
    return None


@dataclass(frozen=True)
class Column:
    """A column of numbers, or of categories if there are any: then it gives one number, 0 or 1, for each."""

    name: str
    categories: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Column:
        """The column that is written as `NAME` or `NAME=first|second|third`.

        The name ends at the first `=`; categories can contain one, as in `<=50K`. Blanks at the ends of names and
        categories do not count. Raises ConfigError for an empty name, and for an empty or repeated category.
        """
        name, given, rest = composed(text).partition("=")
        categories = tuple(category.strip() for category in rest.split("|")) if given else ()
        if not name.strip() or not all(categories) or twice(categories) is not None:
            raise ConfigError(
                f"column {text[:80]!r} is not allowed: it must be NAME, or NAME=first|second|third with "
                "a different name for each category (1 and 1.0 are one)"
            )
        return cls(name.strip(), categories)

    @property
    def width(self) -> int:
        """How many numbers of an example it gives."""
        return len(self.categories) or 1


def parsed(columns: Sequence[str]) -> list[Column]:
    """The columns, in order. Raises ConfigError for one that is not possible or is there twice."""
    parsed_columns = [Column.parse(text) for text in columns]
    for name, times in Counter(column.name for column in parsed_columns).items():
        if times > 1:
            raise ConfigError(f"column {name[:80]!r} is given {times} times; give each column once")
    return parsed_columns


def width(columns: Sequence[Column]) -> int:
    """The numbers of an example that the columns give together."""
    return sum(column.width for column in columns)
