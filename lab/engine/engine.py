"""What trains the clients of a run on this machine: this process itself, or worker processes.

It decides how many there are. What they do is in `worker_grid.py`, and how they live in `pool.py`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

import torch
from flwr.clientapp import ClientApp

from client_app.registry import OBJECTIVES, RULES
from fedstride.errors import ConfigError, DataError, RunError, require
from fedstride.processes.cores import cores
from fedstride.tasks.models import numerics
from fedstride.tasks.spec import Spec
from server_app.config.schema import Config
from server_app.evaluation.central import CentralEvaluation
from server_app.preparation import Prepared
from server_app.rounds import Evaluate

from ..attacks.attacked import attacked
from ..attacks.attacking_grid import AttackedGrid
from . import garbage_collection
from .jobs import Jobs
from .local_grid import LocalGrid
from .pool import Pool
from .worker_grid import DividedEvaluation, Worker, WorkersGrid


class Engine(Protocol):
    """Where the clients of runs are trained. `priority`: of a run; the clients of the smallest come first."""

    notes: Sequence[str]
    """What the user should know: fewer workers than asked for, or more than cores."""

    workers: int
    """The number of worker processes; 0: the process itself."""

    def grid(self, prepared: Prepared, priority: int = 0) -> LocalGrid | AttackedGrid:
        """The Grid of a run, with its attackers. Raises ConfigError if it needs data that are not here."""

    def evaluate(self, priority: int = 0) -> Evaluate:
        """The evaluation at the server."""


class InThisProcess:
    """One client after the other, in this process."""

    workers = 0

    def __init__(self, app: ClientApp, evaluation: CentralEvaluation, notes: Sequence[str] = ()) -> None:
        self._app, self._evaluation, self.notes = app, evaluation, notes

    def grid(self, prepared: Prepared, priority: int = 0) -> LocalGrid | AttackedGrid:
        """A Grid in this process."""
        config = prepared.config
        return attacked(LocalGrid(self._app, config.clients, data=files_of(config)), prepared)

    def evaluate(self, priority: int = 0) -> Evaluate:
        """The evaluation itself."""
        return self._evaluation


class InWorkers:
    """Several clients at the same time, in the workers of a pool."""

    def __init__(
        self, pool: Jobs, app: ClientApp, evaluation: CentralEvaluation, notes: Sequence[str] = ()
    ) -> None:
        self._pool, self._app, self._evaluation, self.notes = pool, app, evaluation, notes
        self.workers = pool.started

    def grid(self, prepared: Prepared, priority: int = 0) -> LocalGrid | AttackedGrid:
        """A Grid whose clients run in the workers."""
        config = prepared.config
        grid = WorkersGrid(self._pool, self._app, config.clients, data=files_of(config), priority=priority)
        return attacked(grid, prepared)

    def evaluate(self, priority: int = 0) -> Evaluate:
        """The evaluation, divided among the workers."""
        return DividedEvaluation(self._evaluation, self._pool, priority=priority)


class Vectorized(InThisProcess):
    """Several clients at once, in this process."""

    def grid(self, prepared: Prepared, priority: int = 0) -> LocalGrid | AttackedGrid:
        """A Grid that trains several clients at once."""
        from .vectorized.grid import VectorizedGrid

        config = prepared.config
        stay = {"device": True, "host": False}.get(config.rules_on)
        size, files = config.clients_at_once, files_of(config)
        grid = VectorizedGrid(self._app, config.clients, data=files, size=size, stay=stay)
        return attacked(grid, prepared)


@contextmanager
def engine(app: ClientApp, prepared: Prepared, workers: int | None = None) -> Iterator[Engine]:
    """The engine of a prepared run, and of others with the same task, network and test set.

    `workers`: how many, if the configuration does not say it; by default `places`. Use it in the main thread,
    before the process has other threads. At its end all workers end. Raises the errors of `check_files`.
    """
    check_files(prepared.config)
    garbage_collection.done()
    with ExitStack() as stack:
        yield _opened(stack, app, prepared, workers)


def _opened(stack: ExitStack, app: ClientApp, prepared: Prepared, workers: int | None) -> Engine:
    config, evaluation = prepared.config, prepared.evaluation
    notes: list[str] = []
    if config.engine == "ray":
        from .ray_jobs import pool_of

        try:
            cluster = stack.enter_context(pool_of(config))
        except RunError as error:
            notes.append(f"{error}; the clients train on this machine")
        else:
            return InWorkers(cluster, app, evaluation, cluster.notes)
    if config.engine == "vectorized":
        reason = _alone(config, evaluation.spec)
        if not reason:
            return Vectorized(app, evaluation, [*notes, *_parts(config)])
        notes.append(f"engine=vectorized: {reason}; the clients train one by one")
    wanted = next(n for n in (config.workers, workers, places(config)) if n is not None)
    if not wanted:
        return InThisProcess(app, evaluation, notes)
    if reason := _cannot_be_copied(config):
        notes.append(f"no worker process is started, because {reason}; the clients train in this one")
        return InThisProcess(app, evaluation, notes)
    try:
        pool = stack.enter_context(Pool(Worker(app, evaluation), wanted, _Start(config)))
    except OSError as error:
        notes.append(f"no worker process could be started ({error}); the clients train in this one")
        return InThisProcess(app, evaluation, notes)
    return InWorkers(pool, app, evaluation, [*notes, *_notes(config, wanted, pool.started)])


def _cannot_be_copied(config: Config) -> str | None:
    """Why workers, which are copies of this process, could not train; None if they could.

    An earlier run of a sweep may have used the process.
    """
    if config.client.threads > 1 and numerics.has_used_threads():
        return "this process has computed on several threads, which a copy of it would not have"
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return "this process has used CUDA, which does not work in a copy of it"
    return None


def _alone(config: Config, spec: Spec) -> str | None:
    """Why the clients of a run cannot be trained together; None if they can."""
    from .vectorized import trial_step

    require(
        not config.workers,
        "workers",
        config.workers,
        "0 or omitted with engine=vectorized, which trains all clients in one process; or choose engine=local",
    )
    for table, chosen in ((RULES, config.client), (OBJECTIVES, config.objective)):
        needs = getattr(table.load(chosen.name), "needs_own_client", None)
        if needs:
            return f"{table.group}={chosen.name} has {needs}, which cannot be computed for several clients at once"
    obstacle = trial_step.obstacle(config.model, spec, config.train, config.task.loss)
    return obstacle and f"clients with model={config.model.name} cannot be trained together ({obstacle})"


def _parts(config: Config) -> list[str]:
    """The note that a round is trained in parts. On a GPU the number of clients is known once a round begins."""
    from .vectorized.grid import ON_A_PROCESSOR

    size = config.clients_at_once or (None if uses_gpus(config) else ON_A_PROCESSOR)
    if size is None or size >= config.cohort_size:
        return []
    count = -(-config.cohort_size // size)
    return [
        f"engine=vectorized: {size} clients train at once, so a round of {config.cohort_size} has {count} parts; "
        "clients_at_once sets the number"
    ]


def places(config: Config) -> int:
    """The number of clients that can train at the same time: one for each GPU, or for each core."""
    if uses_gpus(config):
        count = torch.cuda.device_count() if any_gpu(config) else 1
    else:
        count = max(1, cores() // config.client.threads)
    return min(count, config.cohort_size)


def files_of(config: Config) -> list[str]:
    """The path of each client's own data, of a run with `partition.files`; else none.

    Raises ConfigError if clients should have data of their own, and none are named.
    """
    files = getattr(config.partition, "files", None) or []
    require(
        config.partition.name != "own" or bool(files),
        "partition",
        "own",
        "one that divides the task's data, or own with partition.files=[...], a path for each client; nodes of a "
        "deployment have their own data (fedstride submit)",
    )
    return [str(Path(file).expanduser().resolve()) for file in files]


def check_files(config: Config) -> None:
    """Refuse a run whose files are not on this machine; on a Ray cluster they may be on other machines.

    Raises DataError, of a run that is resumed ConfigError: it can name its files where they are now; and the error
    of `files_of`.
    """
    missing = [file for file in files_of(config) if not Path(file).exists()]
    if not missing:
        return
    if config.resume is not None:
        raise ConfigError(
            f"{missing[0]}, the data of a client of the resumed run, does not exist: name all files where they "
            "are now, as in partition.files=[a.csv,b.csv]"
        )
    if config.engine != "ray":
        raise DataError(
            f"partition.files: {missing[0]} does not exist; name the table, the folder or the data file (*.toml) "
            "of each client, as in partition.files=[a.csv,b.csv]"
        )


class _Start:
    """What a worker does first: ignores Ctrl-C, which is the main process's to handle, and takes its GPU."""

    def __init__(self, config: Config) -> None:
        shares = uses_gpus(config) and any_gpu(config)  # else all see all cards, as in client.device=cuda:1
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "") if shares else ""
        count = torch.cuda.device_count() if shares else 0
        self._gpus = visible.split(",") if visible else [str(number) for number in range(count)]

    def __call__(self, number: int) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if self._gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = self._gpus[number % len(self._gpus)]


def uses_gpus(config: Config) -> bool:
    """Whether the clients of a run on this machine train on a graphics card."""
    name = config.client.device
    return name.startswith("cuda") or (name == "auto" and torch.cuda.is_available())


def any_gpu(config: Config) -> bool:
    """Whether they may train on any of its cards."""
    return config.client.device in ("auto", "cuda")


def _notes(config: Config, wanted: int, started: int) -> list[str]:
    notes = []
    if started < wanted:
        notes.append(f"only {started} of {wanted} worker processes could be started")
    threads = config.client.threads
    busy = started * threads
    if busy > cores() and not uses_gpus(config):
        notes.append(
            f"{started} workers with {threads} {'thread' if threads == 1 else 'threads'} each share {cores()} "
            f"cores, so each gets {cores() / busy:.0%} of what it could use; workers={max(1, cores() // threads)} "
            "is as fast and needs less memory"
        )
    return notes
