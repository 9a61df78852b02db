"""How long runs take, from the rounds that they have done, and which of them fit a budget of time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

from fedstride.errors import ConfigError
from server_app.config.schema import Config
from server_app.records.row_values import Row, number, total
from server_app.rounds import is_due

T = TypeVar("T")

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


class Pace(NamedTuple):
    """Seconds of a round (training and aggregation) and of an evaluation at the server, as measured."""

    round: float
    evaluation: float

    def of(self, config: Config, done: int = 0) -> float:
        """Seconds of the rounds of a run that are left after `done`."""
        evaluated = sum(is_due(at, config) for at in range(done + 1, config.rounds + 1))
        return (config.rounds - done) * self.round + evaluated * self.evaluation


def pace(rows: Sequence[Row]) -> Pace | None:
    """The means over the rounds that a run has done; None if it has done none."""
    trained = [total(row, ("seconds/train", "seconds/aggregate")) for row in rows if row["round"] > 0]
    if not trained:
        return None
    evaluated = [spent for row in rows if (spent := number(row, "seconds/evaluate")) is not None]
    return Pace(sum(trained) / len(trained), sum(evaluated) / len(evaluated) if evaluated else 0.0)


class Planned(NamedTuple, Generic[T]):
    """Something to do, and the seconds that it still needs; 0 if it is complete."""

    what: T
    seconds: float


def within(planned: Sequence[Planned[T]], budget: float | None) -> tuple[list[Planned[T]], list[Planned[T]]]:
    """Those that are done within a budget of seconds, in their order, and the others.

    One that no longer fits is left out; a later, shorter one may still fit. None: all fit.
    """
    chosen: list[Planned[T]] = []
    left: list[Planned[T]] = []
    spent = 0.0
    for run in planned:
        fits = budget is None or not run.seconds or spent + run.seconds <= budget
        (chosen if fits else left).append(run)
        spent += run.seconds if fits else 0.0
    return chosen, left


def seconds_in(text: str) -> float:
    """The seconds of a text such as `8h`, `90min` or `1.5h`. Raises ConfigError for any other text."""
    match = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?)\s*(s|min|h|d)", text.strip(), re.ASCII)
    if match is None or not float(match[1]):
        raise ConfigError(f"--budget {text!r} is not allowed: write a time such as 8h, 90min or 1.5h")
    return float(match[1]) * UNITS[match[2]]


def written(seconds: float) -> str:
    """As hours, minutes and seconds: `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"
