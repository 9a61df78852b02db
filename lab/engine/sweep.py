"""Runs the jobs of a sweep in worker processes."""

from __future__ import annotations

import itertools
import logging
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from types import FrameType

from fedstride.figures.metrics import as_text
from fedstride.processes import unix_signals
from fedstride.processes.cores import cores

from .interrupt import InterruptHandler, how_to_resume
from .jobs import WorkerDiedError
from .pool import Pool
from .sweep_combinations import PlannedRun


@dataclass(frozen=True)
class EndedRun:
    """How a run of a sweep ended; `state` is completed, failed, interrupted or terminated."""

    job: PlannedRun
    state: str
    figure: str = ""  # the final value of the metric that decides
    seconds: float = 0.0
    reason: str = ""


def shared_out(jobs: Sequence[PlannedRun], at_once: int, cores: int) -> list[PlannedRun]:
    """The jobs with numbers of workers, of which `at_once` run at the same time on this number of cores.

    A job that has one core trains its clients itself. Those of the last turn have at least two workers each: they
    do not end at the same time, and with one core each, the other cores would wait for the last job.
    """
    last = len(jobs) % at_once or at_once
    share = max(min(2, cores), -(-cores // last))
    shares = [cores // at_once] * (len(jobs) - last) + [share] * last
    return [replace(job, workers=count if count > 1 else 0) for job, count in zip(jobs, shares, strict=True)]


def run_jobs(
    jobs: Sequence[PlannedRun], *, at_once: int, on_start: Callable[[PlannedRun], None]
) -> Iterator[EndedRun]:
    """Run the jobs in `at_once` processes; yields each job's result when it ends, also if it failed.

    After Ctrl-C, running jobs end after their current client; after SIGTERM, immediately. Then no other job
    starts, and KeyboardInterrupt or Terminated is raised when all running jobs have ended.
    """
    with Pool(run_job, at_once, _Start()) as pool:
        stop = _Stop(pool)
        with unix_signals.handled(stop):
            waiting = iter(shared_out(jobs, at_once, cores()))
            running: dict[Future[EndedRun], PlannedRun] = {}

            @unix_signals.held()  # a run that is announced is also started
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
            unix_signals.RaiseOnce()(self.number)

    def also_after(self, state: str) -> None:
        """End the sweep also if only a worker received the signal."""
        self.number = self.number or _ENDED_BY.get(state)


_ENDED_BY = {"interrupted": signal.SIGINT, "terminated": signal.SIGTERM}
_IN_WORKER = _Stop()  # of this process, if it is a worker: between two jobs, and until a job has its own handler


def _ended(future: Future[EndedRun], job: PlannedRun, number: int | None) -> EndedRun:
    """How a job ended. One whose process died ended by SIGTERM if that arrived while the process was starting."""
    try:
        return future.result()
    except WorkerDiedError as error:
        if number == signal.SIGTERM:
            return EndedRun(job, "terminated", reason=how_to_resume(job.folder))
        return EndedRun(job, "failed", reason=str(error))


def run_job(job: PlannedRun) -> EndedRun:
    """Run one job in this process; an error of the run is returned, not raised."""
    from client_app.app import app
    from server_app import preparation, session

    from ..attacks.membership import audit
    from .engine import engine, places

    started = time.monotonic()
    try:
        with InterruptHandler() as interrupt:
            _IN_WORKER.check()
            prepared = preparation.prepare(job.config)
            workers = min(job.workers // prepared.config.client.threads, places(prepared.config))
            with engine(app, prepared, workers=workers if workers > 1 else 0) as desk:
                grid = desk.grid(prepared)
                outcome = session.run(
                    grid,
                    prepared,
                    evaluate=desk.evaluate(),
                    observers=[interrupt],
                    on_folder=grid.keep_client_states_in,
                    audit=audit,
                )
    except unix_signals.STOPPED as error:
        state = "terminated" if isinstance(error, unix_signals.Terminated) else "interrupted"
        return EndedRun(job, state, reason=how_to_resume(job.folder))
    except Exception as error:  # a failed run must not stop the sweep
        return EndedRun(job, "failed", reason=f"{type(error).__name__}: {error}")
    seconds = time.monotonic() - started
    metric = prepared.config.headline
    return EndedRun(job, "completed", figure=as_text(metric, outcome.rows[-1].get(metric)), seconds=seconds)


class _Start:
    """What a worker does first: it notes signals, unless they are ignored in the main process.

    A worker that a signal ends between two jobs would be replaced by one that does not know of it.
    """

    def __init__(self) -> None:
        self._numbers = [
            signal_number
            for signal_number in unix_signals.NUMBERS
            if signal.getsignal(signal_number) is not signal.SIG_IGN
        ]

    def __call__(self, number: int) -> None:
        logging.getLogger("flwr").setLevel(logging.ERROR)
        for signal_number in self._numbers:
            signal.signal(signal_number, _IN_WORKER)
