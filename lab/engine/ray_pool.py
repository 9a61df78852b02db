"""A pool of workers on the machines of a Ray cluster; the same to its user as the pool on this machine.

It knows nothing of federated learning: each worker builds its function once, and calls it with the jobs it gets.
What several jobs have in common, such as the model of a round, is sent to each machine once.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedstride.errors import RunError

from . import cluster
from .pool import Work, WorkerDiedError
from .transfer import Apart, put_together, taken_apart

START_SECONDS = 300.0
"""The longest wait for the first worker: its machine must read the data."""

Make = Callable[[], Work]


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
        cluster.use_environment(variables)
        self._make = make
        self._work: Work | None = None

    def prepare(self, folder: str) -> cluster.Facts:
        """Build the function; what is known of this process."""
        found = cluster.facts(folder)
        if cluster.unusable(found, folder) is None or self._work is None:
            self._work = self._make()
        return found

    def do(self, head: bytes, shared: Any) -> tuple[bytes, Any]:
        """The result of a job, taken apart."""
        assert self._work is not None
        job = put_together(head, [bytes(each) for each in shared or ()])
        apart = taken_apart(self._work(job))
        return apart.head, _as_arrays(apart)


@dataclass(order=True)
class _Job:
    order: tuple[float, ...]
    parcel: RayParcel = field(compare=False)
    result: Future[Any] = field(compare=False, default_factory=Future)


class RayPool:
    """At most `workers` processes in a cluster that call `make()(job)`; use it as a context manager.

    `folder`: of the runs, which all machines must see. `cpus` and `gpus`: what each of them needs. The first must
    be there before START_SECONDS have passed; others join when they are. Raises RunError if there is none. `notes`
    say which machines are not used.
    """

    def __init__(
        self, ray: Any, make: Make, workers: int, folder: str, *, cpus: float = 1.0, gpus: float = 0.0
    ) -> None:
        self._ray = ray
        self._folder = folder
        self._remote = ray.remote(Remote).options(num_cpus=cpus, num_gpus=gpus)
        self._make = make
        self._lock = threading.Condition()
        self._waiting: list[_Job] = []
        self._count = itertools.count()
        self._idle: list[Any] = []
        self._busy: dict[Any, _Job] = {}
        self._starting: set[Any] = set()
        self._closed = False
        self._reasons: list[str] = []
        self.started = workers
        for _ in range(workers):
            self._start()
        self._wait_for_one()
        self.notes = sorted(set(self._reasons))

    def __enter__(self) -> RayPool:
        return self

    def __exit__(self, *details: Any) -> None:
        self.close()

    def packer(self) -> RayPacker:
        """Packs jobs for `submit`."""
        return RayPacker(self._ray)

    def submit(self, parcel: RayParcel, *, priority: int = 0, seconds: float = 0.0) -> Future[Any]:
        """Queue a job; its result. Smaller priorities first, then those that will take more seconds."""
        job = _Job((priority, -seconds, next(self._count)), parcel)
        with self._lock:
            heapq.heappush(self._waiting, job)
        self._hand_out()
        return job.result

    def close(self) -> None:
        """End all workers at once. Jobs that are not done get WorkerDiedError."""
        with self._lock:
            self._closed = True
            actors = [*self._idle, *self._busy, *self._starting]
            jobs = [*self._busy.values(), *self._waiting]
            self._idle, self._waiting = [], []
        for actor in actors:
            self._ray.kill(actor)
        for job in jobs:
            _settle(job.result, WorkerDiedError("the pool was closed"))

    # -------------------------------------------------------- in threads of Ray

    def _start(self) -> None:
        actor = self._remote.remote(self._make, cluster.environment())
        with self._lock:
            self._starting.add(actor)
        ready = actor.prepare.remote(self._folder).future()
        ready.add_done_callback(lambda found: self._started(actor, found))

    def _started(self, actor: Any, found: Future[cluster.Facts]) -> None:
        error = found.exception()
        reason = _in_words(error) if error is not None else cluster.unusable(found.result(), self._folder)
        with self._lock:
            self._starting.discard(actor)
            if self._closed:
                return
            if reason is None:
                self._idle.append(actor)
            else:
                self._reasons.append(reason)
            self._lock.notify_all()
        if reason is not None:
            self._ray.kill(actor)
            self._fail_if_nobody_is_left()
        self._hand_out()

    def _hand_out(self) -> None:
        while True:
            with self._lock:
                if self._closed or not (self._idle and self._waiting):
                    break
                actor, job = self._idle.pop(), heapq.heappop(self._waiting)
                self._busy[actor] = job
            done = actor.do.remote(job.parcel.head, job.parcel.shared).future()
            done.add_done_callback(lambda found, actor=actor, job=job: self._done(actor, job, found))
        self._fail_if_nobody_is_left()

    def _done(self, actor: Any, job: _Job, found: Future[Any]) -> None:
        error = found.exception()
        gone = isinstance(error, (self._ray.exceptions.RayActorError, self._ray.exceptions.RaySystemError))
        with self._lock:
            self._busy.pop(actor, None)
            if not (gone or self._closed):
                self._idle.append(actor)
            again = gone and not self._closed
        if again:
            self._start()  # on any machine that has room
            threading.Thread(target=self._fail_if_nobody_comes, daemon=True).start()
        if gone:
            _settle(job.result, WorkerDiedError(f"its worker in the cluster ended: {_in_words(error)}"))
        elif error is not None:
            _settle(job.result, getattr(error, "cause", None) or error)
        else:
            head, arrays = found.result()
            job.result.set_result(put_together(head, [bytes(each) for each in arrays]))
        self._hand_out()

    def _fail_if_nobody_is_left(self) -> None:
        with self._lock:
            if self._idle or self._busy or self._starting:
                return
            jobs, self._waiting = self._waiting, []
        for job in jobs:
            _settle(job.result, WorkerDiedError("no worker is left in the cluster"))

    def _fail_if_nobody_comes(self) -> None:
        """After a worker has ended: the wait for another one has a limit, if it was the last."""
        with self._lock:
            anybody = self._lock.wait_for(lambda: self._idle or self._busy or self._closed, START_SECONDS)
            jobs = [] if anybody else self._waiting
            self._waiting = self._waiting if anybody else []
        for job in jobs:
            _settle(
                job.result, WorkerDiedError(f"no worker was left in the cluster for {START_SECONDS:g} seconds")
            )

    def _wait_for_one(self) -> None:
        with self._lock:
            there = self._lock.wait_for(lambda: self._idle or not self._starting, START_SECONDS)
            if self._idle:
                return
        self.close()
        reasons = "; ".join(sorted(set(self._reasons))[:3])
        late = f"none was ready after {START_SECONDS:g} seconds: are there free processor cores?"
        raise RunError(f"no worker in the Ray cluster can be used: {reasons if there else late}")


def _as_arrays(apart: Apart) -> list[Any]:
    """The large arrays as numpy arrays of bytes, which Ray keeps without copies for all processes of a machine."""
    return [np.frombuffer(buffer, np.uint8) for buffer in apart.buffers]


def _settle(result: Future[Any], error: BaseException) -> None:
    if not result.done():
        result.set_exception(error)


def _in_words(error: BaseException | None) -> str:
    text = str(getattr(error, "cause", None) or error).strip()
    return f"{type(error).__name__}: {text.splitlines()[0] if text else ''}"[:300]
