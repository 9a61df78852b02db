"""Plans sweeps: every combination of listed values, as in `seed=1,2,3`, composed, checked and named.

Nothing is trained here.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from fedstride.errors import ConfigError, FedstrideError
from fedstride.own import load_parts
from server_app.config.compose import compose, from_yaml, to_yaml
from server_app.config.methods import ALL, METHOD, alone
from server_app.config.overrides import parts_in, read
from server_app.config.schema import GROUPS, TABLES, Config
from server_app.config.variables import with_variables
from server_app.folder import default_name, folder_name, runs_dir


@dataclass(frozen=True)
class Job:
    """One run of a sweep. The configuration is text, since each process creates its types itself."""

    overrides: tuple[str, ...]
    text: str  # the configuration as YAML
    workers: int = 0  # processes that train its clients, if the configuration does not say it; 0: its own
    optional: str | None = None  # the override that chose its method, if only `method=all` asks for this method

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return _read(self.text)

    @property
    def folder(self) -> Path:
        """The run folder."""
        return runs_dir(self.config) / str(self.config.name)


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """All combinations of overrides like `seed=1,2,3`; the last key varies fastest. `method=all`: each method.

    Raises ConfigError for text that is not an override, and for a sweep that does not list its values.
    """
    columns: list[list[str]] = []
    for text in map(_with_all, overrides):
        override = read(text, "key=value or key=value,value as in seed=1,2,3")
        if not override.is_sweep_override():
            columns.append([text])
        elif override.is_discrete_sweep():
            key = override.get_key_element()
            columns.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            raise ConfigError(f"{text!r} is not allowed: list the values, as in strategy.beta=0.05,0.1")
    return [list(row) for row in itertools.product(*columns)]


@dataclass(frozen=True)
class Sweep:
    """The runs of a sweep, and notes on what is not run."""

    jobs: list[Job]
    notes: list[str]


def _with_all(text: str) -> str:
    """The override with the names of all methods in place of `all`."""
    if not _is_method(text):
        return text
    values = text.partition("=")[2].split(",")
    return f"{METHOD}={','.join(dict.fromkeys(name for v in values for name in (alone() if v == ALL else [v])))}"


def plan(overrides: Sequence[str]) -> Sweep:
    """The runs of a sweep, each composed and named; none is started yet.

    They share a folder `sweep-<time>` below the folder of runs, or `out` if it is given. `method=all` leaves out
    the methods that this run cannot have, with a note. Raises ConfigError for the first other run that is invalid,
    and if a run folder already exists.
    """
    _load_parts(overrides)
    from_all = _from_all(overrides)
    rows = expand(overrides)
    swept = [i for i in range(len(overrides)) if len({row[i] for row in rows}) > 1]
    shared = f"sweep-{time.strftime('%Y%m%d-%H%M%S')}"
    jobs: list[Job] = []
    notes: list[str] = []
    for row in rows:
        optional = next((text for text in row if text in from_all), None)
        try:
            config = compose(with_variables(row, os.environ))
        except ConfigError as error:
            if optional is None:
                raise
            notes.append(f"{optional} is left out: {error}")
            continue
        jobs.append(_named(config, row, [row[i] for i in swept], shared, optional))
    _check_names(jobs)
    return Sweep(jobs, list(dict.fromkeys(notes)))


def _from_all(overrides: Sequence[str]) -> set[str]:
    """The choices that only `method=all` brings in. Not plain averaging: if it is invalid, so are all others."""
    values = {text for row in expand([text for text in overrides if _is_method(text)]) for text in row}
    named = {part for text in overrides if _is_method(text) for part in text.partition("=")[2].split(",")}
    return {text for text in values if text.partition("=")[2] not in {*named, alone()[0]}}


def _load_parts(overrides: Sequence[str]) -> None:
    """Load the user's parts, which are methods of `method=all` too."""
    path = parts_in(overrides) if any(map(_is_method, overrides)) else None
    if path is not None:
        load_parts(path, TABLES)


def _is_method(text: str) -> bool:
    return text.partition("=")[0] == METHOD


def _named(config: Config, row: Sequence[str], swept: Sequence[str], shared: str, optional: str | None) -> Job:
    if config.name is not None:
        raise ConfigError(
            f"name = {config.name!r} is not allowed in a sweep, which names its runs itself: use out=FOLDER"
        )
    if config.out is None:
        config = replace(config, out=str(runs_dir(config) / shared))
    return Job(tuple(row), to_yaml(replace(config, name=_name(config, swept))), optional=optional)


def _check_names(jobs: Sequence[Job]) -> None:
    """Raise ConfigError if a folder exists already, or if two runs would have the same one."""
    named: dict[Path, Job] = {}
    for job in jobs:
        if job.folder.exists():
            raise ConfigError(f"{job.folder} exists and is not overwritten: choose another out=FOLDER")
        if job.folder in named:
            first, second = (" ".join(each.overrides) for each in (named[job.folder], job))
            raise ConfigError(f"two runs of the sweep have the same name: {first!r} and {second!r}; remove one")
        named[job.folder] = job


def _name(config: Config, swept: Sequence[str]) -> str:
    """The default name and all other swept values, as in `...-seed1-beta=0.05`."""
    in_default = (METHOD, *GROUPS, "seed")
    pairs = [text.partition("=") for text in swept]
    extra = [f"{key.rpartition('.')[2]}={value}" for key, _, value in pairs if key not in in_default]
    return folder_name("-".join([default_name(config), *extra]))


def checked(sweep: Sweep) -> Sweep:
    """Build what each run needs, before the first starts; the runs that remain, with the notes on their data.

    Data and partitions are then in the cache, and in the memory that the workers share. Raises the error of the
    first invalid run, with its overrides; a run of `method=all` is left out instead, with a note.
    """
    from server_app import session

    jobs, notes = [], list(sweep.notes)
    for job in sweep.jobs:
        try:
            notes += session.prepare(job.config).notes
            jobs.append(job)
        except FedstrideError as error:
            if job.optional is None:
                raise type(error)(f"{' '.join(job.overrides)}: {error}") from error
            notes.append(f"{job.optional} is left out: {error}")
    return Sweep(jobs, list(dict.fromkeys(notes)))


@lru_cache(maxsize=1024)
def _read(text: str) -> Config:
    return from_yaml(text)
