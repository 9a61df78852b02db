"""Runs the cells one after the other, each on all cores, and goes on with those that were begun."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from server_app.build import build_strategy
from server_app.config.compose import compose, to_yaml
from server_app.config.overrides import written
from server_app.config.schema import Config

from ..engine.begun_runs import BegunRun
from ..engine.sweep import EndedRun, run_jobs
from ..engine.sweep_combinations import PlannedRun
from .cells import Cell
from .run_times import Pace, pace

MEASURED = 1
"""Rounds with which a cell begins, to measure how long one takes."""


@dataclass(frozen=True)
class CellRun(BegunRun):
    """A cell with its configuration and its folder."""

    cell: Cell


def places(cells: Sequence[Cell], out: Path, overrides: Sequence[str] = ()) -> list[CellRun]:
    """The cells with their folders below `out`; `overrides` are those of the user, for all of them.

    Raises ConfigError for a configuration that is not allowed, and if a folder has a run with another one.
    """
    cell_runs = []
    for cell in cells:
        named = [written("out", str(out)), written("name", cell.name)]
        config = compose([*cell.overrides, *overrides, *named])
        build_strategy(config)
        place = CellRun(config, out / cell.name, cell)
        place.check("choose another --out")
        cell_runs.append(place)
    return cell_runs


def first_round(place: CellRun) -> Iterator[EndedRun]:
    """Run the first round of a cell that has none, and yield how it ended."""
    yield from _ended(place, replace(place.config, rounds=min(MEASURED, place.config.rounds)))


def pace_of(place: CellRun) -> Pace | None:
    """As measured in the rounds that are done."""
    run = place.run
    return None if run is None else pace(run.rows)


def completed(place: CellRun) -> Iterator[EndedRun]:
    """Run a cell to its end, from the round in which it is, and yield how it ended."""
    if not place.is_complete():
        yield from _ended(place, place.config)


def _ended(place: CellRun, config: Config) -> Iterator[EndedRun]:
    job = PlannedRun(place.cell.overrides, to_yaml(replace(place, config=config).going_on()))
    yield from run_jobs([job], at_once=1, on_start=lambda started: None)
