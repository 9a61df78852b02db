"""A Flower Grid whose clients run in the workers of a pool, and an evaluation that is divided among them.

The results have the same bits as those of `LocalGrid`, whatever the number of workers: a client's part of a round
depends on the message only, and the server puts replies in the order of clients before it adds them.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedstride import flower
from fedstride.tasks.spec import Spec
from fedstride.tasks.tensors import BatchSums
from server_app.evaluation import CentralEvaluation

from .local import LocalGrid, failure, replied
from .pool import Jobs, WorkerDiedError


@dataclass(frozen=True)
class ClientJob:
    """A message for a client."""

    message: Message
    context: Context


@dataclass(frozen=True)
class EvaluationJob:
    """The evaluation of a model on the batches `start` to `stop` of the test examples."""

    arrays: ArrayRecord
    spec: Spec
    start: int
    stop: int


class Done(NamedTuple):
    """A client's reply, its state after it, and the seconds it took."""

    reply: Message
    state: RecordDict
    seconds: float


class Worker:
    """What a worker does with a job."""

    def __init__(self, app: ClientApp, evaluation: CentralEvaluation) -> None:
        self._app, self._evaluation = app, evaluation

    def __call__(self, job: ClientJob | EvaluationJob) -> Done | list[BatchSums]:
        """The result of the job."""
        if isinstance(job, EvaluationJob):
            return self._evaluation.measure(job.arrays, range(job.start, job.stop), job.spec)
        started = time.perf_counter()
        reply = replied(self._app, job.message, job.context)
        return Done(reply, job.context.state, time.perf_counter() - started)


class WorkersGrid(LocalGrid):
    """The nodes of a `LocalGrid`, whose clients run in the workers of a pool.

    `priority`: of this Grid's jobs, if several use the pool; the smallest first. Clients that took longest the
    last time start first.
    """

    def __init__(self, pool: Jobs, *args: Any, priority: int = 0, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pool, self._priority = pool, priority
        self._underway: dict[str, tuple[Message, Future[Done]]] = {}  # by message id
        self._done: SimpleQueue[str] = SimpleQueue()  # ids of messages, in the order in which they were done
        self._ready: list[str] = []  # those that were taken from the queue, and have not been pulled
        self._seconds: dict[tuple[int, str], float] = {}  # what the last job of this node and kind took

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Queue the messages for the workers; returns their ids."""
        packer, ids = self._pool.packer(), list[str]()
        for message in messages:
            ids.append(flower.stamp(message))
            job = ClientJob(message, self._contexts[message.metadata.dst_node_id])
            expected = self._seconds.get(_kind(message), 0.0)
            future = self._pool.submit(packer.pack(job), priority=self._priority, seconds=expected)
            self._underway[ids[-1]] = message, future
            future.add_done_callback(functools.partial(self._note, ids[-1]))
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that are there, at least one: waits for it. Empty if no message with these ids is queued."""
        wanted = set(message_ids)
        if self._underway.keys().isdisjoint(wanted):
            return []
        while True:
            # What is done comes by itself: to look through thousands of jobs for each reply would take longer.
            while not self._done.empty():
                self._ready.append(self._done.get())
            if found := [each for each in self._ready if each in wanted]:
                self._ready = [each for each in self._ready if each not in wanted]
                return [self._taken(each) for each in found]
            self._ready.append(self._done.get())

    def _note(self, message_id: str, job: Future[Done]) -> None:
        self._done.put(message_id)

    def _taken(self, message_id: str) -> Message:
        message, job = self._underway.pop(message_id)
        try:
            done = job.result()
        except WorkerDiedError as error:
            return failure(message, str(error))
        self._seconds[_kind(message)] = done.seconds
        self._contexts[message.metadata.dst_node_id].state = done.state
        return done.reply


def _kind(message: Message) -> tuple[int, str]:
    return message.metadata.dst_node_id, message.metadata.message_type


class DividedEvaluation:
    """The evaluation of a model on the test examples, each worker with a part of the batches."""

    def __init__(self, evaluation: CentralEvaluation, pool: Jobs, *, priority: int = 0) -> None:
        self._evaluation, self._pool, self._priority = evaluation, pool, priority

    def __call__(self, arrays: ArrayRecord) -> dict[str, float]:
        """The same figures as those of the evaluation itself."""
        packer, spec = self._pool.packer(), self._evaluation.spec
        parts = [
            EvaluationJob(arrays, spec, part.start, part.stop)
            for part in _parts(self._evaluation.batches, self._pool.started)
        ]
        jobs = [self._pool.submit(packer.pack(part), priority=self._priority) for part in parts]
        measured = [self._measured(part, job) for part, job in zip(parts, jobs, strict=True)]
        return self._evaluation.figures([sums for part in measured for sums in part])

    def _measured(self, part: EvaluationJob, job: Future[list[BatchSums]]) -> list[BatchSums]:
        try:
            return job.result()
        except WorkerDiedError:  # no client's fault: the figures must not be missing
            return self._evaluation.measure(part.arrays, range(part.start, part.stop), part.spec)


def _parts(count: int, workers: int) -> Sequence[range]:
    """`count` batches in at most `workers` parts, as equal as possible, in order."""
    bounds = [count * i // workers for i in range(workers + 1)]
    return [range(a, b) for a, b in itertools.pairwise(bounds) if a < b]
