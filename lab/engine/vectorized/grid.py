"""A Flower Grid in this process that trains several clients of a round at once, as one tensor program.

The replies are those of `LocalGrid` up to the last digits of float32, and the same bits from run to run. A
client that cannot be trained together with others trains alone; the log says so once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from logging import WARNING
from typing import Any

import torch
from flwr.app import Context, Message, MessageType

from client_app import free_memory, from_message
from fedstride.flower import logs
from fedstride.messages import wire
from fedstride.messages.records import config_records

from ...attacks.labels import FLIPS, flipped
from ..local_grid import LocalGrid, failure
from . import clients, memory, training
from .clients import ReceivedWeights, Started

ON_A_PROCESSOR = 16
"""Clients that are trained at once on a processor, by default."""


class VectorizedGrid(LocalGrid):
    """The nodes of a `LocalGrid`, trained together.

    `size`: at most this number of clients at once. If None, this is 16 on a processor, and on a GPU what its
    memory has room for, which is measured before the first training. `stay`: whether the clients' models stay on
    the device, where the server's rule then computes; if None, on a GPU.
    """

    def __init__(self, *args: Any, size: int | None = None, stay: bool | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self._size, self._stay = size, stay
        self._kept = training.KeptTrainings()
        self._said: set[str] = set()

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Train the next clients of the queued messages with these ids; their replies. Empty if none is queued."""
        wanted = set(message_ids)
        asked = [message for message in self._queue if message.metadata.message_id in wanted]
        training = [message for message in asked if message.metadata.message_type == MessageType.TRAIN]
        if not training or asked[0] is not training[0]:
            return super().pull_messages(wanted)
        chosen = training[: self._size_for(training)]
        for message in chosen:
            self._queue.remove(message)
        return self._train(chosen)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """All replies, in the order of the messages; `timeout` has no effect here."""
        waiting = list(self.push_messages(messages))
        replies: dict[str, Message] = {}
        while len(replies) < len(waiting):
            pulled = self.pull_messages(set(waiting) - set(replies))
            replies |= {reply.metadata.reply_to_message_id: reply for reply in pulled}
        return [replies[message_id] for message_id in waiting]

    def _size_for(self, messages: Sequence[Message]) -> int:
        """The number of clients of a round to train at once. On a GPU the first one shows it."""
        if self._size is None:
            context = self._contexts[messages[0].metadata.dst_node_id]
            try:
                job = self._job(messages[0], context)
                if on_gpu(job):
                    self._size = self._measured(
                        clients.start(messages[0], context, job, ReceivedWeights()), len(messages)
                    )
                else:
                    self._size = ON_A_PROCESSOR
            except (Exception, SystemExit):  # this client's reply will say why; the next one shows the number
                return 1
        return self._size

    def _measured(self, started: Started, clients: int) -> int:
        room = memory.measured(started, clients if self._stays(started) else 0)
        need, free = (size / 2**20 for size in (room.per_client, room.free))
        self._say(
            f"{room.clients} clients train at once: each needs {need:.0f} MiB of the GPU, and {free:.0f} are free"
        )
        return room.clients

    def _train(self, messages: Sequence[Message]) -> list[Message]:
        """The replies of these clients, in the order of the messages."""
        free_memory.keep_freed_memory()
        replies: dict[int, Message] = {}
        ready: list[_Ready] = []
        received = ReceivedWeights()
        for number, message in enumerate(messages):
            context = self._contexts[message.metadata.dst_node_id]
            since = time.perf_counter()
            try:
                started = clients.start(message, context, self._job(message, context), received)
            except (Exception, SystemExit) as error:
                replies[number] = failure(message, f"{type(error).__name__}: {error}")
            else:
                ready.append(_Ready(number, message, started, time.perf_counter() - since))
        for group in self._groups(ready):
            replies |= self._trained(group)
        return [replies[number] for number in range(len(messages))]

    def _groups(self, ready: Sequence[_Ready]) -> list[list[_Ready]]:
        """Clients that can be trained together; one that must train alone is a group of its own."""
        groups: dict[Any, list[_Ready]] = {}
        for client in ready:
            reason = client.started.begun.methods.obstacle()
            if reason:
                self._say(f"{reason}, so its clients train one after the other")
            groups.setdefault(("alone", client.number) if reason else clients.key(client.started), []).append(
                client
            )
        return list(groups.values())

    def _trained(self, group: Sequence[_Ready]) -> dict[int, Message]:
        """The replies of a group, by their number."""
        since = time.perf_counter()
        if _trains_alone(group):
            return self._alone(group)
        trained: list[clients.Trained] = []
        try:
            trained = training.train_together([client.started for client in group], kept=self._kept)
        except torch.OutOfMemoryError:
            pass  # handled below, where the error no longer holds the memory
        except (Exception, SystemExit) as error:
            reason = " ".join(str(error).split())[:300]
            self._say(f"clients cannot be trained together ({type(error).__name__}: {reason}); they train alone")
            return self._alone(group)
        if not trained and len(group) == 1:
            return self._alone(group)
        if not trained:
            half = len(group) // 2
            self._size = min(self._size or half, half)
            self._say(f"{len(group)} clients need more memory than there is; {half} train at once")
            return self._trained(group[:half]) | self._trained(group[half:])
        share = (time.perf_counter() - since) / len(group)
        replies = {}
        for client, result in zip(group, trained, strict=True):
            try:
                began = time.perf_counter() - client.seconds - share
                stays = self._stays(client.started)
                replies[client.number] = clients.finish(client.started, result, began, stays=stays)
            except (Exception, SystemExit) as error:
                replies[client.number] = failure(client.message, f"{type(error).__name__}: {error}")
        return replies

    def _stays(self, started: Started) -> bool:
        """Whether the client's model stays on its device."""
        return on_gpu(started.job) if self._stay is None else self._stay

    def _job(self, message: Message, context: Context) -> from_message.Work:
        job = from_message.read(config_records(message.content)[wire.CONFIG], context)
        return flipped(job) if FLIPS in context.node_config else job

    def _alone(self, group: Sequence[_Ready]) -> dict[int, Message]:
        return {client.number: self._deliver(client.message) for client in group}

    def _say(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            logs.log(WARNING, "%s", text)


def on_gpu(job: from_message.Work) -> bool:
    """Whether the client trains on a GPU."""
    return job.device.type == "cuda"


def _trains_alone(group: Sequence[_Ready]) -> bool:
    """Whether these are one client that cannot train as others do, or that is faster alone.

    It is faster on a processor. On a GPU it would have other draws of dropout alone, so its result would depend on
    how many train at once.
    """
    started = group[0].started
    return len(group) == 1 and (started.begun.methods.obstacle() is not None or not on_gpu(started.job))


class _Ready:
    """A client that has begun. `number`: of its message; `seconds`: what it has taken so far."""

    def __init__(self, number: int, message: Message, started: Started, seconds: float) -> None:
        self.number, self.message, self.started, self.seconds = number, message, started, seconds
