"""A Flower Grid whose clients run in the workers of a pool, and an evaluation that is divided among them.

The results have the same bits as those of `LocalGrid`, whatever the number of workers: a client's part of a round
depends on the message only, and the server puts replies in the order of clients before it adds them.
"""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from fedstride.flower import identity
from fedstride.tasks.evaluation.measuring import BatchSums
from fedstride.tasks.spec import Spec
from server_app.evaluation.central import CentralEvaluation

from .jobs import Jobs, WorkerDiedError
from .local_grid import AT_ONCE, LocalGrid, failure, has_arrays, replied


@dataclass(frozen=True)
class ClientJob:
    """A message for a client."""

    message: Message
    context: Context


@dataclass(frozen=True)
class EvaluationJob:
    """The evaluation of a model on the batches `start` to `stop` of the test examples."""

    arrays: ArrayRecord
    server_round: int
    spec: Spec
    start: int
    stop: int

    def measured_by(self, evaluation: CentralEvaluation) -> list[BatchSums]:
        """The sums of these batches."""
        return evaluation.measure(self.arrays, self.server_round, range(self.start, self.stop), self.spec)


class Done(NamedTuple):
    """A client's reply, its state after it, and the seconds it took."""

    reply: Message
    state: RecordDict
    seconds: float


class Worker:
    """What a worker does with a job."""

    def __init__(self, app: ClientApp, evaluation: CentralEvaluation) -> None:
        self._app, self._evaluation = app, evaluation

    def __call__(self, job: Sequence[ClientJob] | EvaluationJob) -> list[Done] | list[BatchSums]:
        """The result of the job, or of each of several clients' jobs."""
        if isinstance(job, EvaluationJob):
            return job.measured_by(self._evaluation)
        return [self._done(client_job) for client_job in job]

    def _done(self, job: ClientJob) -> Done:
        started = time.perf_counter()
        reply = replied(self._app, job.message, job.context)
        return Done(reply, job.context.state, time.perf_counter() - started)


TURNS = 8
"""A worker gets its share of many small jobs in at least so many parts, so that none waits long for another."""


class _Group(NamedTuple):
    """Messages that one worker gets at once, by id, and what becomes of them."""

    messages: dict[str, Message]
    done: Future[list[Done]]


class WorkersGrid(LocalGrid):
    """The nodes of a `LocalGrid`, whose clients run in the workers of a pool.

    `priority`: of this Grid's jobs, if several use the pool; the smallest first. Clients that took longest the
    last time start first. A message with a model is a job of its own; a worker gets several others at once.
    """

    def __init__(self, pool: Jobs, *args: Any, priority: int = 0, **options: Any) -> None:
        super().__init__(*args, **options)
        self._pool, self._priority = pool, priority
        self._underway: dict[str, Message] = {}  # by id: those that have not been pulled
        self._over: SimpleQueue[_Group] = SimpleQueue()  # in the order in which they were done
        self._ready: dict[str, Done | WorkerDiedError] = {}  # by message id: not yet pulled
        self._seconds: dict[tuple[int, str], float] = {}  # what the last job of this node and kind took

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Queue the messages for the workers; returns their ids."""
        stamped = {identity.stamp(message): message for message in messages}
        self._underway |= stamped
        self._submit(_groups(stamped, self._pool.started))
        return list(stamped)

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that are there, at least one: waits for it. Empty if no message with these ids is queued."""
        wanted = set(message_ids)
        if self._underway.keys().isdisjoint(wanted):
            return []
        while True:
            # What is done comes by itself: to look through thousands of jobs for each reply would take longer.
            while not self._over.empty():
                self._settle(self._over.get())
            if ready := [message_id for message_id in self._ready if message_id in wanted]:
                return [self._taken(message_id) for message_id in ready]
            self._settle(self._over.get())

    def _submit(self, groups: Iterable[dict[str, Message]]) -> None:
        packer = self._pool.packer()
        for messages in groups:
            jobs = [
                ClientJob(message, self._contexts[message.metadata.dst_node_id]) for message in messages.values()
            ]
            expected = sum(self._seconds.get(_kind(message), 0.0) for message in messages.values())
            done = self._pool.submit(packer.pack(jobs), priority=self._priority, seconds=expected)
            done.add_done_callback(functools.partial(self._note, messages))

    def _note(self, messages: dict[str, Message], done: Future[list[Done]]) -> None:
        self._over.put(_Group(messages, done))

    def _settle(self, group: _Group) -> None:
        """Keep the results of a group. If its worker died, each message is tried alone: one was the cause."""
        try:
            self._ready |= zip(group.messages, group.done.result(), strict=True)
        except WorkerDiedError as error:
            if len(group.messages) > 1:
                self._submit({message_id: message} for message_id, message in group.messages.items())
            else:
                self._ready |= dict.fromkeys(group.messages, error)

    def _taken(self, message_id: str) -> Message:
        message, done = self._underway.pop(message_id), self._ready.pop(message_id)
        if isinstance(done, WorkerDiedError):
            return failure(message, str(done))
        self._seconds[_kind(message)] = done.seconds
        self._contexts[message.metadata.dst_node_id].state = done.state
        return done.reply


def _groups(messages: Mapping[str, Message], workers: int) -> Iterator[dict[str, Message]]:
    """The messages in the parts that workers get: one with arrays alone, of the others several at once."""
    small = [message_id for message_id, message in messages.items() if not has_arrays(message)]
    size = max(1, min(AT_ONCE, len(small) // (TURNS * workers)))
    parts = [small[start : start + size] for start in range(0, len(small), size)]
    parts += [[message_id] for message_id, message in messages.items() if has_arrays(message)]
    yield from ({message_id: messages[message_id] for message_id in part} for part in parts)


def _kind(message: Message) -> tuple[int, str]:
    return message.metadata.dst_node_id, message.metadata.message_type


class DividedEvaluation:
    """The evaluation of a model on the test examples, each worker with a part of the batches."""

    def __init__(self, evaluation: CentralEvaluation, pool: Jobs, *, priority: int = 0) -> None:
        self._evaluation, self._pool, self._priority = evaluation, pool, priority

    def __call__(self, arrays: ArrayRecord, server_round: int) -> dict[str, float | list[float]]:
        """The same figures as those of the evaluation itself."""
        packer, spec = self._pool.packer(), self._evaluation.spec
        parts = [
            EvaluationJob(arrays, server_round, spec, part.start, part.stop)
            for part in _parts(self._evaluation.batches, self._pool.started)
        ]
        jobs = [self._pool.submit(packer.pack(part), priority=self._priority) for part in parts]
        measured = [self._measured(part, job) for part, job in zip(parts, jobs, strict=True)]
        return self._evaluation.figures([sums for part in measured for sums in part])

    def _measured(self, part: EvaluationJob, job: Future[list[BatchSums]]) -> list[BatchSums]:
        try:
            return job.result()
        except WorkerDiedError:  # no client's fault: the figures must not be missing
            return part.measured_by(self._evaluation)


def _parts(count: int, workers: int) -> Sequence[range]:
    """`count` batches in at most `workers` parts, as equal as possible, in order."""
    bounds = [count * i // workers for i in range(workers + 1)]
    return [range(a, b) for a, b in itertools.pairwise(bounds) if a < b]
