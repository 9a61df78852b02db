"""Numbers that a rule needs from each client in addition to the model, and what of a reply is accepted as such."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .figures import NUMBER, form_of, real


@dataclass(frozen=True)
class Number:
    """A number in [`least`, `most`], or with `count` a list of so many, that each client must report as a metric.

    The clients `known` need not report it: the rule has it from an earlier round.
    """

    least: float = -math.inf
    most: float = math.inf
    count: int | None = None
    known: frozenset[int] = frozenset()

    def fault(self, value: Any, client_id: int) -> str | None:
        """Why this value, None if there is none, is not the number of this client; None if it is."""
        if value is None:
            return None if client_id in self.known else "is missing"
        form = form_of(value)
        if form != (NUMBER if self.count is None else self.count):
            wanted = "a number" if self.count is None else f"a list of {self.count} numbers"
            kind = type(value).__name__ if form is None else "a number" if form == NUMBER else f"a list of {form}"
            return f"is {kind}, expected {wanted}"
        items = value if isinstance(value, list) else [value]
        wrong = next((item for item in items if not self.least <= real(item) <= self.most), None)  # NaN fails too
        return None if wrong is None else f"is {real(wrong):.6g}, expected [{self.least:g}, {self.most:g}]"
