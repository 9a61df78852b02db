"""Sweeps: runs every combination of listed values, as in `seed=1,2,3`, in worker processes."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from types import FrameType

from fedstride import signals
from fedstride.errors import ConfigError, FedstrideError
from fedstride.metrics import as_text
from server_app.config.compose import compose, from_yaml, to_yaml
from server_app.config.overrides import read
from server_app.config.schema import GROUPS, Config
from server_app.config.variables import with_variables
from server_app.folder import default_name, folder_name, runs_dir

from .interrupt import InterruptHandler, how_to_resume
from .pool import Pool, WorkerDiedError


@dataclass(frozen=True)
class Job:
    """One run of a sweep. The configuration is text, since each process creates its types itself."""

    overrides: tuple[str, ...]
    text: str  # the configuration as YAML
    workers: int = 0  # processes that train its clients, if the configuration does not say it; 0: its own

    @property
    def config(self) -> Config:
        """The configuration of the run."""
        return _read(self.text)

    @property
    def folder(self) -> Path:
        """The run folder."""
        return runs_dir(self.config) / str(self.config.name)


@dataclass(frozen=True)
class Ended:
    """How a run of a sweep ended; `state` is completed, failed, interrupted or terminated."""

    job: Job
    state: str
    figure: str = ""  # the final value of the metric that decides
    seconds: float = 0.0
    reason: str = ""


def expand(overrides: Sequence[str]) -> list[list[str]]:
    """All combinations of overrides like `seed=1,2,3`; the last key varies fastest.

    Raises ConfigError for text that is not an override, and for a sweep that does not list its values.
    """
    columns: list[list[str]] = []
    for text in overrides:
        override = read(text, "key=value or key=value,value as in seed=1,2,3")
        if not override.is_sweep_override():
            columns.append([text])
        elif override.is_discrete_sweep():
            key = override.get_key_element()
            columns.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            raise ConfigError(f"{text!r} is not allowed: list the values, as in strategy.beta=0.05,0.1")
    return [list(row) for row in itertools.product(*columns)]


def plan(overrides: Sequence[str]) -> list[Job]:
    """The runs of a sweep, each composed and named; none is started yet.

    They share a folder `sweep-<time>` below the folder of runs, or `out` if it is given. Raises ConfigError
    for the first invalid run, and if a run folder already exists.
    """
    rows = expand(overrides)
    swept = [i for i in range(len(overrides)) if len({row[i] for row in rows}) > 1]
    shared = f"sweep-{time.strftime('%Y%m%d-%H%M%S')}"
    jobs = []
    for row in rows:
        config = compose(with_variables(row, os.environ))
        if config.name is not None:
            raise ConfigError(
                f"name = {config.name!r} is not allowed in a sweep, which names its runs itself: use out=FOLDER"
            )
        if config.out is None:
            config = replace(config, out=str(runs_dir(config) / shared))
        config = replace(config, name=_name(config, [row[i] for i in swept]))
        job = Job(tuple(row), to_yaml(config))
        if job.folder.exists():
            raise ConfigError(f"{job.folder} exists and is not overwritten: choose another out=FOLDER")
        jobs.append(job)
    return jobs


def _name(config: Config, swept: Sequence[str]) -> str:
    """The default name and all other swept values, as in `...-seed1-beta=0.05`."""
    in_default = (*GROUPS, "seed")
    pairs = [text.partition("=") for text in swept]
    extra = [f"{key.rpartition('.')[2]}={value}" for key, _, value in pairs if key not in in_default]
    return folder_name("-".join([default_name(config), *extra]))


def checked(jobs: Sequence[Job]) -> Sequence[str]:
    """Build what each run needs, before the first starts; the notes on their data.

    Data and partitions are then in the cache, and in the memory that the workers share. Raises the error of the
    first invalid run, with its overrides.
    """
    from server_app import session

    notes: list[str] = []
    for job in jobs:
        try:
            notes += session.prepare(job.config).notes
        except FedstrideError as error:
            raise type(error)(f"{' '.join(job.overrides)}: {error}") from error
    return list(dict.fromkeys(notes))


def shared_out(jobs: Sequence[Job], at_once: int) -> list[Job]:
    """The jobs with numbers of workers, of which `at_once` run at the same time.

    Those of the last turn, if they are fewer, share the processes that have nothing else to do.
    """
    left = len(jobs) % at_once
    share = at_once // left if left else 1
    last = [replace(job, workers=share if share > 1 else 0) for job in jobs[len(jobs) - left :]]
    return [*jobs[: len(jobs) - left], *last]


def run_jobs(jobs: Sequence[Job], *, at_once: int, on_start: Callable[[Job], None]) -> Iterator[Ended]:
    """Run the jobs in `at_once` processes; yields each job's result when it ends, also if it failed.

    After Ctrl-C, running jobs end after their current client; after SIGTERM, immediately. Then no other job
    starts, and KeyboardInterrupt or Terminated is raised when all running jobs have ended.
    """
    with Pool(run_job, at_once, _Start()) as pool:
        stop = _Stop(pool)
        with signals.handled(stop):
            waiting = iter(shared_out(jobs, at_once))
            running: dict[Future[Ended], Job] = {}

            @signals.held()  # a run that is announced is also started
            def submit() -> None:
                for job in itertools.islice(waiting, pool.started - len(running)):
                    on_start(job)
                    running[pool.submit(pool.packer().pack(job))] = job

            submit()
            while running:
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    ended = _ended(future, running.pop(future), stop.number)
                    stop.also_after(ended.state)
                    yield ended
                if stop.number is None:
                    submit()
            stop.check()


class _Stop:
    """Notes the first signal that ends the sweep, and sends SIGTERM on to the workers.

    They receive Ctrl-C themselves: a terminal sends it to all processes of a command.
    """

    def __init__(self, pool: Pool | None = None) -> None:
        self.number: int | None = None
        self._pool = pool

    def __call__(self, number: int, frame: FrameType | None = None) -> None:
        if self.number is None:
            self.number = number
            if self._pool is not None and number == signal.SIGTERM:
                self._pool.signal(number)

    def check(self) -> None:
        """Raise the exception of the noted signal, if there is one."""
        if self.number is not None:
            signals.RaiseOnce()(self.number)

    def also_after(self, state: str) -> None:
        """End the sweep also if only a worker received the signal."""
        self.number = self.number or _ENDED_BY.get(state)


_ENDED_BY = {"interrupted": signal.SIGINT, "terminated": signal.SIGTERM}
_IN_WORKER = _Stop()  # of this process, if it is a worker: between two jobs, and until a job has its own handler


def _ended(future: Future[Ended], job: Job, number: int | None) -> Ended:
    """How a job ended. One whose process died ended by SIGTERM if that arrived while the process was starting."""
    try:
        return future.result()
    except WorkerDiedError as error:
        if number == signal.SIGTERM:
            return Ended(job, "terminated", reason=how_to_resume(job.folder))
        return Ended(job, "failed", reason=str(error))


def run_job(job: Job) -> Ended:
    """Run one job in this process; an error of the run is returned, not raised."""
    from client_app.app import app
    from server_app import session

    from .engine import engine

    started = time.monotonic()
    try:
        with InterruptHandler() as interrupt:
            _IN_WORKER.check()
            prepared = session.prepare(job.config)
            with engine(app, prepared, workers=job.workers) as desk:
                grid = desk.grid(prepared.config)
                outcome = session.run(
                    grid,
                    prepared,
                    evaluate=desk.evaluate(),
                    observers=[interrupt],
                    on_folder=grid.keep_client_states_in,
                )
    except signals.STOPPED as error:
        state = "terminated" if isinstance(error, signals.Terminated) else "interrupted"
        return Ended(job, state, reason=how_to_resume(job.folder))
    except Exception as error:  # a failed run must not stop the sweep
        return Ended(job, "failed", reason=f"{type(error).__name__}: {error}")
    seconds = time.monotonic() - started
    metric = prepared.config.headline
    return Ended(job, "completed", figure=as_text(metric, outcome.rows[-1].get(metric)), seconds=seconds)


@lru_cache(maxsize=1024)
def _read(text: str) -> Config:
    return from_yaml(text)


class _Start:
    """What a worker does first: it notes signals, unless they are ignored in the main process.

    A worker that a signal ends between two jobs would be replaced by one that does not know of it.
    """

    def __init__(self) -> None:
        self._numbers = [each for each in signals.NUMBERS if signal.getsignal(each) is not signal.SIG_IGN]

    def __call__(self, number: int) -> None:
        logging.getLogger("flwr").setLevel(logging.ERROR)
        for each in self._numbers:
            signal.signal(each, _IN_WORKER)
