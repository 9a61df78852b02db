"""A pool of workers on the machines of a Ray cluster; the same to its user as the pool on this machine.

Each worker builds its function once, and calls it with the jobs that it gets. What several jobs have in common,
such as the model of a round, is sent to each machine once.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedstride.errors import RunError, printable

from . import ray_cluster
from .jobs import Queue, Work, WorkerJob
from .pool import CLOSED
from .transfer import Apart, put_together, taken_apart

START_SECONDS = 300.0
"""The longest wait for the first worker: its machine must read the data."""

Make = Callable[[], Work]
Event = Callable[[], None] | None  # what the pool's thread does next; None: it ends


@dataclass(frozen=True)
class RayParcel:
    """A job without its large arrays, and where these are."""

    head: bytes
    shared: Any  # a reference to a list of arrays of bytes; None: there are none


class RayPacker:
    """Packs jobs; those with the same large arrays share one copy of them in the cluster."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._copies: dict[tuple[int, ...], tuple[Apart, Any]] = {}

    def pack(self, value: Any) -> RayParcel:
        """A parcel of this value, which must stay unchanged as long as this object is used."""
        apart = taken_apart(value)
        if not apart.buffers:
            return RayParcel(apart.head, None)
        if apart.key not in self._copies:
            self._copies[apart.key] = apart, self._ray.put(_as_arrays(apart))
        return RayParcel(apart.head, self._copies[apart.key][1])


class Remote:
    """A worker: the class of the Ray actors."""

    def __init__(self, make: Make, variables: Mapping[str, str]) -> None:
        ray_cluster.use_environment(variables)
        self._make = make
        self._work: Work | None = None

    def prepare(self, demands: ray_cluster.Demands) -> ray_cluster.ProcessFacts:
        """Build the function; what is known of this process."""
        facts = ray_cluster.facts(demands)
        if ray_cluster.unusable(facts, demands) is None:
            self._work = self._make()
        return facts

    def do(self, head: bytes, shared: Any) -> tuple[bytes, Any]:
        """The result of a job, taken apart."""
        assert self._work is not None
        job = put_together(head, [bytes(array) for array in shared or ()])
        apart = taken_apart(self._work(job))
        return apart.head, _as_arrays(apart)


class RayPool:
    """At most `workers` processes in a cluster that call `make()(job)`; use it as a context manager.

    `demands`: on each machine. `cpus` and `gpus`: what each of them needs. The first must
    be there before START_SECONDS have passed; others join when they are. Raises RunError if there is none. `notes`
    say which machines are not used.
    """

    def __init__(
        self,
        ray: Any,
        make: Make,
        workers: int,
        demands: ray_cluster.Demands,
        *,
        cpus: float = 1.0,
        gpus: float = 0.0,
    ) -> None:
        self._ray, self._make, self._demands = ray, make, demands
        self._remote = ray.remote(Remote).options(num_cpus=cpus, num_gpus=gpus)
        self._queue = Queue()
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._first: Future[None] = Future()  # done when a worker is ready, or none can be
        self._idle: list[Any] = []
        self._busy: dict[Any, WorkerJob] = {}
        self._starting: set[Any] = set()
        self._reasons: set[str] = set()
        self.started = workers
        for _ in range(workers):
            self._start()
        self._thread = threading.Thread(target=self._run, name="ray pool", daemon=True)
        self._thread.start()
        try:
            self._first.result(START_SECONDS)
        except BaseException as error:
            self.close()
            if isinstance(error, TimeoutError):
                late = f"none was ready after {START_SECONDS:g} seconds: are there free processor cores?"
                raise RunError(f"no worker in the Ray cluster can be used: {late}") from None
            raise
        self.notes = sorted(self._reasons)

    def __enter__(self) -> RayPool:
        return self

    def __exit__(self, *details: Any) -> None:
        self.close()

    def packer(self) -> RayPacker:
        """Packs jobs for `submit`."""
        return RayPacker(self._ray)

    def submit(self, parcel: RayParcel, *, priority: int = 0, seconds: float = 0.0) -> Future[Any]:
        """Queue a job; its result. See `Jobs`."""
        result = self._queue.add(parcel, priority, seconds)
        self._events.put(lambda: None)
        return result

    def close(self) -> None:
        """End all workers at once. Jobs that are not done get WorkerDiedError."""
        self._queue.refuse(CLOSED)
        self._events.put(None)
        self._thread.join()
        for actor in [*self._idle, *self._busy, *self._starting]:
            self._ray.kill(actor)
        for job in self._busy.values():
            job.died(CLOSED)
        self._queue.fail(CLOSED)

    # -------------------------------------------------------- in the pool's thread
    # Futures of Ray call back in a thread of Ray's own, which must not wait for Ray: it only adds an event.

    def _run(self) -> None:
        while True:
            try:
                event = self._events.get(timeout=None if self._idle or self._busy else START_SECONDS)
            except queue.Empty:
                self._give_up(f"no worker was in the cluster for {START_SECONDS:g} seconds")
                continue
            if event is None:
                return
            event()
            while self._idle and (job := self._queue.take()) is not None:
                self._hand_out(self._idle.pop(), job)
            if not (self._idle or self._busy or self._starting):
                self._give_up("no worker is left in the cluster")

    def _start(self) -> None:
        actor = self._remote.remote(self._make, ray_cluster.environment())
        self._starting.add(actor)
        ready = actor.prepare.remote(self._demands).future()
        ready.add_done_callback(lambda future: self._events.put(lambda: self._ready(actor, future)))

    def _ready(self, actor: Any, future: Future[ray_cluster.ProcessFacts]) -> None:
        self._starting.discard(actor)
        error = future.exception()
        reason = in_words(error) if error is not None else ray_cluster.unusable(future.result(), self._demands)
        if reason is not None:
            if self._first.done() and reason not in self._reasons:  # `notes` are read already
                ray_cluster.say_not_used(reason)
            self._reasons.add(reason)
            self._ray.kill(actor)
            return
        self._idle.append(actor)
        if not self._first.done():
            self._first.set_result(None)

    def _hand_out(self, actor: Any, job: WorkerJob) -> None:
        self._busy[actor] = job
        done = actor.do.remote(job.parcel.head, job.parcel.shared).future()
        done.add_done_callback(lambda future: self._events.put(lambda: self._done(actor, job, future)))

    def _done(self, actor: Any, job: WorkerJob, future: Future[Any]) -> None:
        del self._busy[actor]
        error = future.exception()
        raised = self._ray.exceptions
        if isinstance(error, raised.RayError) and not isinstance(error, raised.RayTaskError):
            self._ray.kill(actor)  # it or its machine ended, or its result was lost with the machine
            self._start()  # another one, on any machine that has room
            job.died(f"its worker in the cluster ended: {in_words(error)}")
            return
        self._idle.append(actor)
        if error is not None:
            job.result.set_exception(getattr(error, "cause", None) or error)
        else:
            head, arrays = future.result()
            job.result.set_result(put_together(head, [bytes(array) for array in arrays]))

    def _give_up(self, reason: str) -> None:
        if not self._first.done():
            text = "; ".join(sorted(self._reasons)[:3])
            self._first.set_exception(RunError(f"no worker in the Ray cluster can be used: {text or reason}"))
        self._queue.fail(reason)


def _as_arrays(apart: Apart) -> list[Any]:
    """The large arrays as numpy arrays of bytes, which Ray keeps without copies for all processes of a machine."""
    return [np.frombuffer(buffer, np.uint8) for buffer in apart.buffers]


def in_words(error: BaseException) -> str:
    """An error of Ray on one line: of a traceback in it, the last line."""
    cause = getattr(error, "cause", None) or error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return printable(f"{type(cause).__name__}: {lines[-1] if lines else ''}")[:300]
