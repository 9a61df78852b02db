"""Runs the cells one after the other, each on all cores, and goes on with those that were begun."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedstride.errors import ConfigError
from server_app.build import build_strategy
from server_app.config.compose import compose, to_yaml
from server_app.config.keys import by_key
from server_app.config.overrides import written
from server_app.config.schema import Config

from ..engine.sweep import EndedRun, run_jobs
from ..engine.sweep_combinations import PlannedRun
from ..results.run_folders import Run, is_run, load
from .cells import Cell
from .run_times import Pace, pace

MEASURED = 1
"""Rounds with which a cell begins, to measure how long one takes."""


@dataclass(frozen=True)
class CellRun:
    """A cell with its configuration and its folder."""

    cell: Cell
    config: Config
    folder: Path

    @property
    def run(self) -> Run | None:
        """What there is of it; None if it was not begun."""
        return load(self.folder) if is_run(self.folder) else None

    def done(self) -> int:
        """The number of its rounds that are complete."""
        run = self.run
        return run.rows[-1]["round"] if run is not None and run.rows else 0

    def is_complete(self) -> bool:
        """Whether it has reached its end, and not that of the measurement."""
        run = self.run
        if run is None or not run.completed:
            return False
        return run.config.rounds == self.config.rounds or self.done() < run.config.rounds  # ended early


def places(cells: Sequence[Cell], out: Path, overrides: Sequence[str] = ()) -> list[CellRun]:
    """The cells with their folders below `out`; `overrides` are those of the user, for all of them.

    Raises ConfigError for a configuration that is not allowed, and if a folder has a run with another one.
    """
    cell_runs = []
    for cell in cells:
        named = [written("out", str(out)), written("name", cell.name)]
        config = compose([*cell.overrides, *overrides, *named])
        build_strategy(config)
        place = CellRun(cell, config, out / cell.name)
        _check_same(place)
        cell_runs.append(place)
    return cell_runs


def _check_same(place: CellRun) -> None:
    run = place.run
    if run is None:
        if place.folder.exists() and any(place.folder.iterdir()):
            raise ConfigError(
                f"{place.folder} is not a run of this command: move it away, or choose another --out"
            )
        return
    stored, wanted = by_key(run.config), by_key(place.config)
    other = [key for key, value in wanted.items() if value is not None and stored[key] != value]
    other = [key for key in other if key not in ("rounds", "resume", "out", "name")]
    if other:
        now, then = wanted[other[0]], stored[other[0]]
        raise ConfigError(
            f"{place.folder} has a run with {other[0]} = {then!r}, not {now!r}: choose another --out"
        )


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
    if place.run is not None:
        config = compose([written("resume", str(place.folder)), written("rounds", config.rounds)])
    job = PlannedRun(place.cell.overrides, to_yaml(config))
    yield from run_jobs([job], at_once=1, on_start=lambda started: None)
