"""How a node's own files become examples, where the form of an example does not say it.

It says nothing about where the files are: this is the node's own matter (`data=` in its node-config).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from ..errors import require
from .forms.columns import Column, parsed
from .missing import ERROR, FillRule, rules_of

PREPARED_VARIABLE = "FEDSTRIDE_PREPARED"
"""The variable that names a folder with examples that a node has read itself, for its apps."""


def sample_of(channel: str, at: int) -> str:
    """The column of a table with a sample of a channel."""
    return f"{channel}_{at}"


RESIZED = ("", "stretch", "crop", "pad")
"""How an image gets another size; see `own_files/readers/images.py`."""


@dataclass(frozen=True)
class Reading:
    """The names of columns in a table of numbers or texts, and the rate of sound.

    A column of numbers is given by its name, a column of categories as `NAME=first|second|third`: it becomes one
    number, 0 or 1, for each category.
    """

    columns: tuple[str, ...] = ()  # of the table, in the order of an example's numbers
    texts: tuple[str, ...] = ("text",)  # columns whose texts are joined with a blank
    targets: tuple[str, ...] = ("label",)  # one column; one for each output with several labels or values
    missing: str = ERROR  # what replaces an empty cell of any column; see `missing.py`
    rate: int = 0  # samples of a recording per second
    window: float = 25.0  # of log-mel features: length of a frame, in ms
    step: float = 10.0  # of log-mel features: time from one frame to the next, in ms
    missing_of: tuple[str, ...] = ()  # the same of single columns, each as COLUMN=RULE
    resize: str = ""  # how images of another size get the task's; empty: they are refused
    convert: bool = False  # whether images of other pixels get the task's; else they are refused
    lowest: float = 0.0  # value of grey with more than 8 bits that is 0 in the task
    highest: float = 0.0  # and the one that is 255; not above the lowest: none is said
    signals: tuple[str, ...] = ()  # channels of signals in a table

    def __post_init__(self) -> None:
        """Raises ConfigError for what is no rule of missing cells."""
        require(self.resize in RESIZED, "reading.resize", self.resize, ", ".join(filter(None, RESIZED)))
        require(
            math.isfinite(self.lowest) and math.isfinite(self.highest), "reading.lowest", self.lowest, "finite"
        )
        rule = FillRule.parse(self.missing)
        if rule.indicator or self.missing_of:
            rules_of(self.missing, self.missing_of, parsed(self.columns))

    def of_signals(self, samples: int) -> tuple[str, ...]:
        """The columns of a table with signals of so many samples, channel by channel."""
        return tuple(sample_of(name, at) for name in self.signals for at in range(samples))

    @cached_property
    def parsed(self) -> list[Column]:
        """The columns."""
        return parsed(self.columns)

    @cached_property
    def rules(self) -> Mapping[str, FillRule]:
        """What replaces a missing cell of each column, by name."""
        return rules_of(self.missing, self.missing_of, self.parsed)

    @property
    def may_be_missing(self) -> bool:
        """Whether cells of some column may be missing."""
        return any(rule.fill != ERROR for rule in (FillRule.parse(self.missing), *self.rules.values()))

    @property
    def indicators(self) -> list[str]:
        """The columns that have an indicator, in order."""
        return [name for name, rule in self.rules.items() if rule.indicator]

    @property
    def has_medians(self) -> bool:
        """Whether a missing cell of some column becomes the median."""
        return any(rule.median for rule in (FillRule.parse(self.missing), *self.rules.values()))

    def flatten(self) -> dict[str, Any]:
        """The values that are not the default, as plain values of a ConfigRecord."""
        plain = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {
            f"reading.{name}": list(value) if isinstance(value, tuple) else value
            for name, (value, default) in plain.items()
            if value != default
        }

    @classmethod
    def unflatten(cls, record: Mapping[str, Any]) -> Reading:
        """What `flatten` converted. Raises TypeError or ValueError for values of another type."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            default: Any = field.default
            kind, value = type(default), record.get(f"reading.{field.name}", default)
            values[field.name] = tuple(str(item) for item in value) if kind is tuple else kind(value)
        return cls(**values)
