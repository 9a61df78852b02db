"""Jobs for workers: what takes them, and the queue in which they wait, for a pool here and one in a cluster."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol

Work = Callable[[Any], Any]
"""What a worker does with a job; its result."""


class WorkerDiedError(Exception):
    """The worker that had the job died."""


class Jobs(Protocol):
    """What takes jobs: a pool on this machine, or one on others."""

    started: int
    """The number of its workers."""

    def packer(self) -> Any:
        """Packs jobs for `submit`."""

    def submit(self, parcel: Any, *, priority: int = 0, seconds: float = 0.0) -> Future[Any]:
        """Queue a job; its result. Smaller priorities first, then those that will take more seconds.

        The future raises what `work` raised, or WorkerDiedError: also if the pool was closed, because a run in
        another thread is then to end as it was asked to, and not with an error of its own.
        """


@dataclass(order=True)
class WorkerJob:
    """A job and what becomes of it."""

    order: tuple[float, ...]  # the smallest comes first
    parcel: Any = field(compare=False)
    result: Future[Any] = field(compare=False, default_factory=Future)

    def died(self, reason: str) -> None:
        """Give it WorkerDiedError."""
        self.result.set_exception(WorkerDiedError(reason))


class Queue:
    """The jobs that no worker has yet. For several threads."""

    def __init__(self) -> None:
        self._waiting: list[WorkerJob] = []
        self._count = itertools.count()
        self._refused = ""  # why no job is taken any more
        self._lock = threading.Lock()

    def add(self, parcel: Any, priority: int, seconds: float) -> Future[Any]:
        """See `Jobs.submit`."""
        job = WorkerJob((priority, -seconds, next(self._count)), parcel)
        with self._lock:
            if self._refused:
                job.died(self._refused)
            else:
                heapq.heappush(self._waiting, job)
        return job.result

    def take(self) -> WorkerJob | None:
        """The next job; None if none waits."""
        with self._lock:
            return heapq.heappop(self._waiting) if self._waiting else None

    def refuse(self, reason: str) -> None:
        """Give WorkerDiedError to all jobs that come from now on."""
        with self._lock:
            self._refused = reason

    def fail(self, reason: str) -> None:
        """Give WorkerDiedError to all jobs that wait."""
        while (job := self.take()) is not None:
            job.died(reason)
