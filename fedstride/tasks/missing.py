"""What replaces a missing cell of a table: a rule for all columns, or one for each.

    error              a missing cell is refused
    mean, median       of its column over all sites
    mean+indicator     the same, and the example has one more number: 1 where the cell is missing, else 0

The numbers of indicators are the last ones of an example, in the order of their columns. They are not normalised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..errors import ConfigError
from .forms.columns import Column

ERROR, MEAN, MEDIAN = "error", "mean", "median"
_INDICATOR = "+indicator"

RULES = (ERROR, MEAN, MEDIAN, MEAN + _INDICATOR, MEDIAN + _INDICATOR)
"""All of them, as they are written."""


class FillRule(NamedTuple):
    """What replaces a missing cell of a column."""

    fill: str = ERROR
    indicator: bool = False

    @property
    def median(self) -> bool:
        """Whether it becomes the median."""
        return self.fill == MEDIAN

    def __str__(self) -> str:
        return self.fill + (_INDICATOR if self.indicator else "")

    @classmethod
    def parse(cls, text: str) -> FillRule:
        """The rule that is written so. Raises ConfigError for any other text."""
        if text not in RULES:
            raise ConfigError(f"missing = {text[:60]!r} is not allowed: it must be one of {', '.join(RULES)}")
        return cls(text.removesuffix(_INDICATOR), text.endswith(_INDICATOR))


def divided(said: Sequence[str], columns: Sequence[Column]) -> tuple[str, tuple[str, ...]]:
    """From a list as `[mean, "age=median"]`: the rule of all columns, and those of single ones as `COLUMN=RULE`.

    Raises ConfigError for two rules of one kind, for a column that is none of these, and for what is no rule.
    """
    of_all = [rule for rule in said if "=" not in rule]
    single = tuple(rule for rule in said if "=" in rule)
    if len(of_all) > 1:
        raise ConfigError(
            f"missing = {list(said)} is not allowed: it has {len(of_all)} rules for all columns; write those of "
            "single columns as COLUMN=RULE"
        )
    rules_of(of_all[0] if of_all else ERROR, single, columns)
    return of_all[0] if of_all else ERROR, single


def rules_of(of_all: str, single: Sequence[str], columns: Sequence[Column]) -> Mapping[str, FillRule]:
    """The rule of each column, by name, in order. Raises ConfigError as `divided` does."""
    rules = dict.fromkeys((column.name for column in columns), FillRule.parse(of_all))
    seen = set()
    for text in single:
        name, _, rule = text.partition("=")
        name = name.strip()
        if name not in rules or name in seen:
            what = "has two rules" if name in seen else f"is none of {', '.join(rules) or 'the named columns'}"
            raise ConfigError(f"missing: the column {name[:60]!r} {what[:300]}; write one rule as COLUMN=RULE")
        rules[name] = FillRule.parse(rule.strip())
        seen.add(name)
    return rules


def with_indicators(x: np.ndarray, columns: Sequence[Column], rules: Mapping[str, FillRule]) -> np.ndarray:
    """x (n, width of the columns), in which missing cells are NaN, with the indicators at the end."""
    blocks, at = [x], 0
    for column in columns:
        if rules[column.name].indicator:
            blocks.append(np.isnan(x[:, [at]]).astype(x.dtype))
        at += column.width
    return np.concatenate(blocks, axis=1) if len(blocks) > 1 else x
