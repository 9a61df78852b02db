"""The columns of a table by name: how one is written in a setting, and which of an example's numbers it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import ConfigError


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
        name, given, rest = text.partition("=")
        categories = tuple(each.strip() for each in rest.split("|")) if given else ()
        if not name.strip() or not all(categories) or len(set(categories)) < len(categories):
            raise ConfigError(
                f"column {text[:80]!r} is not allowed: it must be NAME, or NAME=first|second|third with "
                "a different name for each category"
            )
        return cls(name.strip(), categories)

    @property
    def width(self) -> int:
        """How many numbers of an example it gives."""
        return len(self.categories) or 1


def parsed(columns: Sequence[str]) -> list[Column]:
    """The columns, in order. Raises ConfigError for one that is not possible or is there twice."""
    found = [Column.parse(text) for text in columns]
    names = [column.name for column in found]
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ConfigError(
            f"column {twice[0][:80]!r} is given {names.count(twice[0])} times; give each column once"
        )
    return found


def width(columns: Sequence[Column]) -> int:
    """The numbers of an example that the columns give together."""
    return sum(column.width for column in columns)
