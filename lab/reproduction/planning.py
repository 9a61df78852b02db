"""Measures a round of each method in each column, and plans which runs are done within a budget of time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fedstride.errors import RunError

from .run_times import Pace, Planned, within
from .running import CellRun, first_round, pace_of

Kind = tuple[str, str]
"""An experiment and a method: its runs differ by their seeds only, and take equally long."""


@dataclass(frozen=True)
class Measured:
    """How fast each kind is, and why the first round of others failed, as if their data are not here."""

    paces: Mapping[Kind, Pace]
    failed: Mapping[Kind, str]


@dataclass(frozen=True)
class BudgetPlan:
    """The runs that are done, in their order, and the others; each with the seconds that it still needs."""

    chosen: list[Planned[CellRun]]
    left: list[Planned[CellRun]]

    @property
    def seconds(self) -> float:
        """Of all that are done."""
        return sum(run.seconds for run in self.chosen)


def kind_of(place: CellRun) -> Kind:
    """What decides how long a run takes."""
    return place.cell.experiment, place.cell.line.label


def measure(places: Sequence[CellRun], on_measured: Callable[[CellRun, Pace | str], None]) -> Measured:
    """The pace of each kind: in the rounds that a run of it has done, else in its first one, which is run now.

    `on_measured` gets the first place of each kind with its pace, or with the reason why the round failed. Raises
    RunError, with the first reason, if all failed.
    """
    known: dict[Kind, Pace] = {}
    failed: dict[Kind, str] = {}
    for place in places:
        if (pace := pace_of(place)) is not None:
            known.setdefault(kind_of(place), pace)
    first: dict[Kind, CellRun] = {}
    for place in places:
        first.setdefault(kind_of(place), place)
    for kind, place in first.items():
        for ended in () if kind in known else first_round(place):
            if (pace := pace_of(place)) is not None:
                known[kind] = pace
            else:
                failed[kind] = ended.reason
        on_measured(place, known[kind] if kind in known else failed[kind])
    if failed and not known:
        raise RunError(next(iter(failed.values())))
    return Measured(known, failed)


def plan(places: Sequence[CellRun], measured: Measured, budget: float | None) -> BudgetPlan:
    """The runs in the order of `places`, of which those are done that fit `budget`, in seconds."""
    able = [place for place in places if kind_of(place) in measured.paces]
    return BudgetPlan(
        *within([Planned(place, _seconds(place, measured.paces[kind_of(place)])) for place in able], budget)
    )


def _seconds(place: CellRun, pace: Pace) -> float:
    return 0.0 if place.is_complete() else pace.of(place.config, place.done())
