"""Plans sweeps: every combination of listed values, as in `seed=1,2,3`, composed, checked and named.

Nothing is trained here.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from fedstride.errors import ConfigError, FedstrideError
from fedstride.user_parts import load_parts
from server_app.build import build_strategy
from server_app.config import paths
from server_app.config.compose import compose, from_yaml, to_yaml
from server_app.config.grammar import Typed
from server_app.config.keys import by_key
from server_app.config.methods import ALL, METHOD, alone
from server_app.config.overrides import Override, parts_in, values_of, written
from server_app.config.schema import TABLES, Config
from server_app.config.variables import with_variables
from server_app.records.run_folder import NAMED, default_name, folder_name, runs_dir


class ListedValue(NamedTuple):
    """An override with one value."""

    override: Override
    from_all: bool = False  # whether only `method=all` asks for it

    @property
    def text(self) -> str:
        """As it is typed."""
        return self.override.text


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep. The configuration is text, since each process creates its types itself."""

    overrides: tuple[str, ...]
    text: str  # the configuration as YAML
    workers: int = 0  # processes that train its clients, if the configuration does not say it; 0: its own
    swept: tuple[str, ...] = ()  # those of the overrides in which the runs differ
    optional: str | None = None  # the override of its method, if only `method=all` asks for this method

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return _read(self.text)

    @property
    def folder(self) -> Path:
        """The run folder."""
        config = self.config
        return Path(config.resume) if config.resume else runs_dir(config) / str(config.name)


class Left(NamedTuple):
    """A run that `method=all` leaves out."""

    method: str
    swept: tuple[str, ...]  # the overrides in which the runs of the sweep differ
    reason: str


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep, those of them that are complete already, and those that `method=all` has left out."""

    jobs: list[PlannedRun]
    left: list[Left]
    on_data: tuple[str, ...] = ()
    complete: tuple[PlannedRun, ...] = ()

    @property
    def runs(self) -> list[PlannedRun]:
        """Also those that are complete already."""
        return [*self.complete, *self.jobs]

    @property
    def folder(self) -> Path:
        """In which its runs have their folders."""
        return self.runs[0].folder.parent

    @property
    def notes(self) -> list[str]:
        """On the data, and on what is left out: a method, or single runs of a method that has others."""
        kept = {job.optional for job in self.jobs}
        named = (
            f"{' '.join(run.swept) if run.method in kept else run.method} is left out: {run.reason}"
            for run in self.left
        )
        complete = [f"{len(self.complete)} of {len(self.runs)} runs are complete already"] if self.complete else []
        return list(dict.fromkeys([*complete, *self.on_data, *named]))


def expand(overrides: Sequence[str]) -> list[list[ListedValue]]:
    """All combinations of overrides like `seed=1,2,3`; the last key varies fastest. `method=all`: each method.

    Raises ConfigError for text that is not an override, and for a sweep that does not list its values.
    """
    return _combined([values_of(text) for text in overrides])


def _combined(given: Sequence[Sequence[Override]]) -> list[list[ListedValue]]:
    columns = [_methods(column) if column[0].key == METHOD else list(map(ListedValue, column)) for column in given]
    return [list(row) for row in itertools.product(*columns)]


def _methods(given: Sequence[Override]) -> list[ListedValue]:
    """The methods; in place of `method=all` each one that is not named beside it.

    Plain averaging counts as named: if it is invalid, so are all others.
    """
    named = [written(METHOD, override.name) for override in given]
    every = [written(METHOD, name) for name in alone()]
    unnamed = [ListedValue(override, override != every[0]) for override in every if override not in named]
    return [
        value for override in named for value in (unnamed if override.name == ALL else [ListedValue(override)])
    ]


def plan(overrides: Sequence[str], *, resume: bool = False) -> Sweep:
    """The runs of a sweep, each composed and named; none is started yet.

    They share a folder `sweep-<time>` below the folder of runs, or `out` if it is given. `method=all` leaves out
    what cannot be run. Raises ConfigError for the first other run that is invalid, and if a run folder already
    exists. `resume`: unless it has this very run, or a part of it.
    """
    given = [values_of(text) for text in overrides]
    _load_parts(given)
    rows = _combined(given)
    swept = [i for i in range(len(overrides)) if len({row[i].text for row in rows}) > 1]
    shared = f"sweep-{time.strftime('%Y%m%d-%H%M%S')}"
    jobs: list[PlannedRun] = []
    left: list[Left] = []
    for row in rows:
        chosen, differing = [value.override for value in row], [row[i].override for i in swept]
        optional = next((value.text for value in row if value.from_all), None)
        try:
            config = compose(with_variables(chosen, os.environ))
            build_strategy(config)
        except ConfigError as error:
            if optional is None:
                raise
            left.append(Left(optional, _texts(differing), str(error)))
            continue
        if resume and config.out is None:
            raise ConfigError("a sweep is resumed in its folder: name it, as in out=runs/sweep-20261128-014700")
        config = paths.absolute(_named(config, differing, shared))
        text = to_yaml(config)
        _known[text] = config  # to read it again takes as long as to compose it
        jobs.append(PlannedRun(_texts(chosen), text, swept=_texts(differing), optional=optional))
    distinct = _distinct(jobs)
    if resume:
        from .begun_runs import split

        begun, jobs = split(distinct, "choose another out=FOLDER")
        return Sweep(jobs, left, complete=begun)
    _check_new(distinct)
    return Sweep(distinct, left)


def _texts(overrides: Sequence[Override]) -> tuple[str, ...]:
    return tuple(override.text for override in overrides)


def _load_parts(given: Sequence[Sequence[Override]]) -> None:
    """Load the user's parts first, which are methods of `method=all` too."""
    for override in itertools.chain.from_iterable(given):
        path = parts_in(with_variables([override], os.environ)) if override.key == "parts" else None
        if path is not None:
            load_parts(path, TABLES)


def _named(config: Config, swept: Sequence[Override], shared: str) -> Config:
    if config.name is not None:
        raise ConfigError(
            f"name = {config.name!r} is not allowed in a sweep, which names its runs itself: use out=FOLDER"
        )
    out = config.out or str(runs_dir(config) / shared)
    return replace(config, out=out, name=_name(config, swept))


def _name(config: Config, swept: Sequence[Override]) -> str:
    """The default name and all other swept values, as in `...-seed1-beta=0.05`."""
    in_default = (METHOD, "seed", *NAMED)
    pairs = [(override.text.partition("=")[0], _shown(config, override)) for override in swept]
    extra = [f"{key.rpartition('.')[2]}={value}" for key, value in pairs if key not in in_default]
    return folder_name("-".join([default_name(config), *extra]))


def _shown(config: Config, override: Override) -> str:
    """The value as typed; a number in its shortest form, unless the setting is text."""
    is_text = isinstance(by_key(config).get(override.key), str)
    if isinstance(override.value, Typed) and not is_text:
        return str(override.value.value)
    return override.text.partition("=")[2]


def _distinct(jobs: Sequence[PlannedRun]) -> list[PlannedRun]:
    """The jobs, without those of `method=all` that another one does too; each with a folder of its own.

    Raises ConfigError if the same run is asked for twice.
    """
    named: dict[Path, PlannedRun] = {}
    for job in jobs:
        other = named.get(job.folder)
        if other is not None and other.text != job.text:  # as the names of two values may be shown alike
            job = _renamed(job)
        elif other is not None and other.optional is None and job.optional is None:
            first, second = (" ".join(run.overrides) for run in (other, job))
            raise ConfigError(f"the sweep has the same run twice, as {first!r} and as {second!r}: remove one")
        if other is None or job.folder not in named or job.optional is None:
            named[job.folder] = job
    return list(named.values())


def _check_new(jobs: Sequence[PlannedRun]) -> None:
    for job in jobs:
        if job.folder.exists():
            raise ConfigError(
                f"{job.folder} exists and is not overwritten: choose another out=FOLDER, or resume the sweep in "
                "this one with --resume, in Python resume=True"
            )


def _renamed(job: PlannedRun) -> PlannedRun:
    """The job with a part of its configuration's hash in its name."""
    end = hashlib.sha256(job.text.encode()).hexdigest()[:8]
    config = job.config
    return replace(job, text=to_yaml(replace(config, name=folder_name(f"{config.name}-{end}"))))


def checked(sweep: Sweep, *, here: bool = True) -> Sweep:
    """Build what each run needs, before the first starts; the runs that remain.

    `here`: the runs will be on this machine, where the files of `partition=own` must be then. Data and partitions
    are in the cache after it, and in the memory that the workers share. Raises the error of the
    first invalid run, with its overrides; a run of `method=all` is left out instead.
    """
    from server_app import preparation

    from .begun_runs import going_on
    from .engine import check_files

    jobs, left, notes = [], list(sweep.left), list(sweep.on_data)
    for job in sweep.jobs:
        try:
            job = going_on(job)
            notes += preparation.prepare(job.config).notes
            if here:
                check_files(job.config)
            jobs.append(job)
        except FedstrideError as error:
            if job.optional is None:
                raise type(error)(f"{' '.join(job.overrides)}: {error}") from error
            left.append(Left(job.optional, job.swept, str(error)))
    return replace(sweep, jobs=jobs, left=left, on_data=tuple(dict.fromkeys(notes)))


_known: dict[str, Config] = {}
"""The configurations of this process, by their text."""


def _read(text: str) -> Config:
    if text not in _known:
        _known[text] = from_yaml(text)
    return _known[text]
