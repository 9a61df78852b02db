"""How a node's own files become examples, where the form of an example does not say it.

It says nothing about where the files are: this is the node's own matter (`data=` in its node-config).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import require

PREPARED_VARIABLE = "FEDSTRIDE_PREPARED"
"""The variable that names a folder with examples that a node has read itself, for its apps."""

MISSING = ("error", "mean")
"""What an empty cell of a table is: refused, or the mean of its column."""


@dataclass(frozen=True)
class Reading:
    """The names of columns in a table of numbers or texts, and the rate of sound.

    A column of numbers is given by its name, a column of categories as `NAME=first|second|third`: it becomes one
    number, 0 or 1, for each category.
    """

    columns: tuple[str, ...] = ()  # of the table, in the order of an example's numbers
    texts: tuple[str, ...] = ("text",)  # columns whose texts are joined with a blank
    targets: tuple[str, ...] = ("label",)  # one column; one for each output with several labels or values
    missing: str = "error"  # or "mean": an empty cell becomes the mean of its column
    rate: int = 0  # samples of a recording per second
    window: float = 25.0  # of log-mel features: length of a frame, in ms
    step: float = 10.0  # of log-mel features: time from one frame to the next, in ms

    def __post_init__(self) -> None:
        require(self.missing in MISSING, "reading.missing", self.missing, " or ".join(MISSING))

    def flatten(self) -> dict[str, Any]:
        """The values that are not the default, as plain values of a ConfigRecord."""
        plain = {each.name: (getattr(self, each.name), each.default) for each in fields(self)}
        return {
            f"reading.{name}": list(value) if isinstance(value, tuple) else value
            for name, (value, default) in plain.items()
            if value != default
        }

    @classmethod
    def unflatten(cls, record: Mapping[str, Any]) -> Reading:
        """What `flatten` converted. Raises TypeError or ValueError for values of another type."""
        found: dict[str, Any] = {}
        for each in fields(cls):
            default: Any = each.default
            kind, value = type(default), record.get(f"reading.{each.name}", default)
            found[each.name] = tuple(str(item) for item in value) if kind is tuple else kind(value)
        return cls(**found)
