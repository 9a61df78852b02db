"""What a row of the records may be, and its values by kind: a folder may be anybody's, and say anything."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from fedstride.messages import wire
from fedstride.plain_numbers import is_number, is_whole

Row = dict[str, Any]
"""The values of a round or a client by metric name: numbers, strings, or lists of them."""

LAST_ROUND = 2**31
"""A row has a smaller round."""

TEXTS = frozenset(wire.TEXTS_OF_ROWS)
"""The values of a client's row that are texts."""

LABELS = wire.CLIENTS_OF_ROWS
"""Values that stand for a client: its number or its name. A list of them has a name that ends so."""


def is_row(value: Any) -> bool:
    """Whether this is a row: its round, and by name numbers, lists of numbers, and texts where they belong."""
    return isinstance(value, dict) and is_round(value.get("round")) and all(map(_belongs, value, value.values()))


def number(row: Mapping[str, Any], name: str) -> float | None:
    """The value of this name if it is one finite number."""
    value: Any = row.get(name)
    return value if is_number(value) and math.isfinite(value) else None


def numbers(row: Mapping[str, Any], name: str) -> list[float]:
    """The list of numbers of this name, NaN where one is missing; empty if it is no list."""
    value = row.get(name)
    return [item if is_number(item) else math.nan for item in value] if isinstance(value, list) else []


def labels(row: Mapping[str, Any], name: str) -> list[int | str]:
    """The list of clients of this name; empty if it is no list."""
    value = row.get(name)
    return [item for item in value if isinstance(item, (int, str))] if isinstance(value, list) else []


def total(row: Mapping[str, Any], names: Iterable[str]) -> float:
    """The sum of the numbers of these names; one that is missing counts as 0."""
    return sum(number(row, name) or 0.0 for name in names)


def is_round(value: Any) -> bool:
    """Whether this is the number of a round."""
    return is_whole(value) and 0 <= value < LAST_ROUND


def _belongs(name: str, value: Any) -> bool:
    if name in TEXTS:
        return value is None or isinstance(value, str)
    if name in LABELS:
        return value is None or isinstance(value, (int, str))
    if isinstance(value, list):
        kinds = (int, float, str) if name.rpartition("/")[2] in LABELS else (int, float)
        return all(item is None or isinstance(item, kinds) for item in value)
    return value is None or isinstance(value, (int, float))


def plain(value: Any) -> Any:
    """Replace the values that JSON does not have: NaN and infinity become None."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
