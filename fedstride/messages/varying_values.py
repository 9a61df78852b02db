"""What a value in a message may be from round to round: its type and its range. Each part declares its own.

A signed run (`signed_runs.py`) fixes all other values, and a node refuses a message with another one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

MOST_WHOLE = 2**64 - 1

KINDS: Mapping[str, type[Any]] = {"int": int, "float": float}


@dataclass(frozen=True)
class Varies:
    """A number, or a list of at most `most_values` numbers, from `least` to `most`.

    `optional`: a message may be without it. `once`: all are equal to the first one. `rises`: it is never lower
    than in an earlier message.
    """

    kind: str  # int or float
    least: int | float
    most: int | float
    most_values: int | None = None  # None: a single number
    optional: bool = False
    once: bool = False
    rises: bool = False

    def __post_init__(self) -> None:
        """Raises ValueError for what is no type and range."""
        kind = KINDS.get(self.kind) if isinstance(self.kind, str) else None
        if kind is None or not all(_is(kind, limit) for limit in (self.least, self.most)):
            raise ValueError(f"{self.kind!r} from {self.least!r} to {self.most!r} is no type with a range")
        if self.most_values is not None and (type(self.most_values) is not int or self.most_values < 1):
            raise ValueError(f"a list of at most {self.most_values!r} values")
        if not all(type(flag) is bool for flag in (self.optional, self.once, self.rises)):
            raise ValueError("optional, once and rises are true or false")

    @classmethod
    def of(cls, plain: object) -> Varies:
        """What `plain` describes. Raises ValueError if it describes nothing."""
        if not isinstance(plain, dict) or plain.keys() != {field.name for field in fields(cls)}:
            raise ValueError("a value that varies has other keys than its type and range")
        return cls(**plain)

    def plain(self) -> dict[str, Any]:
        """As values of JSON."""
        return asdict(self)

    def allows(self, value: object) -> bool:
        """Whether a message may have this value."""
        if self.most_values is None:
            return self._has(value)
        return isinstance(value, list) and len(value) <= self.most_values and all(map(self._has, value))

    def __str__(self) -> str:
        text = f"{self.kind} from {self.least} to {self.most}"
        return text if self.most_values is None else f"at most {self.most_values} of {text}"

    def _has(self, value: Any) -> bool:
        return _is(KINDS[self.kind], value) and self.least <= value <= self.most


def _is(kind: type[Any], value: Any) -> bool:
    """Whether a value is a number of this type, and finite. 1, 1.0 and True are not the same."""
    return type(value) is kind and math.isfinite(value)
