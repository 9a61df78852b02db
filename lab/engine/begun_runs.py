"""What there is already of a planned run in its folder, and the configuration with which it goes on.

For what makes many runs, and can be ended between and within them: sweeps, comparisons and reproductions.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedstride.errors import ConfigError
from server_app import preparation
from server_app.config.compose import compose, to_yaml
from server_app.config.keys import by_key
from server_app.config.overrides import written
from server_app.config.schema import Config
from server_app.records.checkpoint import valid_checkpoints
from server_app.records.run_folder import lock

from ..results.run_folders import Run, is_run, load
from .sweep_combinations import PlannedRun

NOT_COMPARED = ("rounds", "resume", "out", "name")
"""Keys that say where a run is, and how far it goes."""


@dataclass(frozen=True)
class BegunRun:
    """A planned run and its folder, in which there may be all of it, a part, or nothing."""

    config: Config
    folder: Path

    @property
    def run(self) -> Run | None:
        """What there is of it; None if it was not begun."""
        return load(self.folder) if is_run(self.folder) else None

    def done(self) -> int:
        """The number of its rounds that are complete."""
        return _rounds(self.run)

    def is_complete(self) -> bool:
        """Whether it has reached its end: the planned number of rounds, or an early one."""
        run = self.run
        if run is None or not run.completed:
            return False
        return run.config.rounds == self.config.rounds or _rounds(run) < run.config.rounds  # ended early

    def check(self, instead: str) -> None:
        """Raise ConfigError, with what to do instead, if the folder has anything but the planned run.

        Also if another process writes to it.
        """
        run = self.run
        if run is None:
            if self.folder.exists() and any(self.folder.iterdir()):
                raise ConfigError(f"{self.folder} is not a run of this command: move it away, or {instead}")
            return
        if run.in_progress:
            raise ConfigError(f"{self.folder} is being written to by another process: wait for it, or stop it")
        stored, wanted = by_key(run.config), by_key(preparation.settled(self.config))
        other = [key for key, value in wanted.items() if stored.get(key) != value and key not in NOT_COMPARED]
        if other:
            now, then = wanted[other[0]], stored.get(other[0])
            raise ConfigError(f"{self.folder} has a run with {other[0]} = {then!r}, not {now!r}: {instead}")
        done, rounds = _rounds(run), self.config.rounds
        if done > rounds:
            raise ConfigError(f"{self.folder} has a run of {done} rounds, more than rounds = {rounds}: {instead}")

    def going_on(self) -> Config:
        """The configuration with which it goes on from its newest checkpoint, or begins.

        A folder in which no round was completed is removed: the run writes the same again. Raises ConfigError if
        another process writes to it.
        """
        if not self.folder.exists():
            return self.config
        if self.done() == 0 and not valid_checkpoints(self.folder):
            with lock(self.folder):  # another process may have begun it since `check`
                shutil.rmtree(self.folder)
            return self.config
        return compose([written("resume", str(self.folder)), written("rounds", self.config.rounds)])


def _rounds(run: Run | None) -> int:
    return run.rows[-1]["round"] if run is not None and run.rows else 0


def split(jobs: Sequence[PlannedRun], instead: str) -> tuple[tuple[PlannedRun, ...], list[PlannedRun]]:
    """The runs that are complete, and the others.

    Raises ConfigError, with what to do instead, if a folder has anything else.
    """
    complete: list[PlannedRun] = []
    others: list[PlannedRun] = []
    for job in jobs:
        place = _place(job)
        place.check(instead)
        (complete if place.is_complete() else others).append(job)
    return tuple(complete), others


def going_on(job: PlannedRun) -> PlannedRun:
    """The run as it goes on from what there is in its folder."""
    return replace(job, text=to_yaml(_place(job).going_on())) if job.folder.exists() else job


def _place(job: PlannedRun) -> BegunRun:
    return BegunRun(job.config, job.folder)
