"""Receives the replies to messages, each for itself: what is wrong with one of them costs the node that sent it.

On a deployment a reply is fetched, bounded and parsed in a thread of its own, so that a node which announces a
reply and never sends it, or sends it slowly, holds up nobody else. On any Grid a reply with more than is allowed
becomes an error message, which the screening rejects like any other failure of a client.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any, Protocol

from flwr.app import Error, Message
from flwr.serverapp import Grid

from fedstride.errors import ReplyError
from fedstride.flower.for_superlinks.replies import (
    AnnouncedReply,
    ReplyTooLargeError,
    SuperLinkRequests,
    UndeliverableError,
    behind,
)
from fedstride.messages import wire
from fedstride.messages.reply_objects import Allowance, check_values, parse

PAUSES = (0.02, 0.5)
"""Shortest and longest seconds between two requests for an object that has not arrived yet."""


class Receiver(Protocol):
    """Gets the replies to messages."""

    def replies(self, message_ids: Iterable[str]) -> list[tuple[str, Message]]:
        """The replies that have arrived to these messages, each with the id of the message. Does not wait."""

    def is_fetching(self) -> bool:
        """Whether a reply is announced that is not yet here."""

    def wait(self, seconds: float) -> None:
        """Wait so long for announced replies, or until the first one is complete."""

    def close(self) -> None:
        """Stop fetching; what has not arrived completely is lost."""


def receiver(grid: Grid, sent: Mapping[str, Message], returns: Mapping[str, Any] | None = None) -> Receiver:
    """The receiver for this Grid. `sent`: messages by id; `returns`: what is asked back, see `Allowance.of`."""
    allowances = {message_id: Allowance.of(message, returns) for message_id, message in sent.items()}
    link = behind(grid)
    return InMemory(grid, sent, allowances) if link is None else FromSuperLink(link, sent, allowances)


class InMemory:
    """Replies of a Grid that gives them out as messages: this process, a simulation, tests."""

    def __init__(self, grid: Grid, sent: Mapping[str, Message], allowances: Mapping[str, Allowance]) -> None:
        self._grid, self._sent, self._allowances = grid, sent, allowances

    def replies(self, message_ids: Iterable[str]) -> list[tuple[str, Message]]:
        """The replies, each within its bounds or as an error."""
        waiting = set(message_ids)
        replies = []
        for reply in self._grid.pull_messages(list(waiting)):
            message_id = reply.metadata.reply_to_message_id
            if message_id in waiting:
                replies.append((message_id, self._checked(message_id, reply)))
        return replies

    def _checked(self, message_id: str, reply: Message) -> Message:
        try:
            check_values(reply, self._allowances[message_id])
        except ReplyError as error:
            return unusable(self._sent[message_id], error)
        return reply

    def is_fetching(self) -> bool:
        """Never: such a Grid gives out complete replies."""
        return False

    def wait(self, seconds: float) -> None:
        """There is nothing to wait for."""

    def close(self) -> None:
        """Nothing is under way."""


class FromSuperLink:
    """Replies that a SuperLink keeps for a ServerApp in another process."""

    def __init__(
        self, link: SuperLinkRequests, sent: Mapping[str, Message], allowances: Mapping[str, Allowance]
    ) -> None:
        self._link, self._sent, self._allowances = link, sent, allowances
        self._pool = ThreadPoolExecutor(max(1, len(sent)), thread_name_prefix="reply")  # nobody waits for another
        self._parsing = threading.Lock()  # one reply at a time needs a multiple of its bytes
        self._stop = threading.Event()
        self._underway: dict[str, Future[Message | None]] = {}

    def replies(self, message_ids: Iterable[str]) -> list[tuple[str, Message]]:
        """The replies that are complete. Begins to fetch those that were announced since the last call.

        Each is asked for by itself: the SuperLink gives a reply out once, so one answer that cannot be read must
        not contain the replies of others.
        """
        for message_id in message_ids:
            if message_id not in self._underway:
                self._begin(message_id)
        done = {message_id: job for message_id, job in self._underway.items() if job.done()}
        for message_id in done:
            del self._underway[message_id]
        return [(message_id, reply) for message_id, job in done.items() if (reply := job.result()) is not None]

    def is_fetching(self) -> bool:
        """Whether a thread is at work."""
        return bool(self._underway)

    def wait(self, seconds: float) -> None:
        """Wait so long for the threads, or until the first one has finished."""
        wait(self._underway.values(), seconds, FIRST_COMPLETED)

    def close(self) -> None:
        """Stop the threads at their next request."""
        self._stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, message_id: str) -> None:
        allowance = self._allowances[message_id]
        try:
            announced = self._link.announced(message_id, allowance.most_objects)
        except ReplyTooLargeError as error:
            failed: Future[Message | None] = Future()
            failed.set_result(unusable(self._sent[message_id], error))
            self._underway[message_id] = failed
        else:
            if announced is not None:
                self._underway[message_id] = self._pool.submit(self._received, announced, allowance)

    def _received(self, announced: AnnouncedReply, allowance: Allowance) -> Message | None:
        """The reply, or the error that stands for it; None if it was not complete at the end of the exchange."""
        asked = self._sent[announced.reply_to]
        try:
            contents = self._fetched(announced.objects, allowance.most_bytes)
            if contents is None:
                return None
            with self._parsing:
                reply = parse(announced.message_id, contents, allowance)
            check_values(reply, allowance)
            if reply.metadata.reply_to_message_id != announced.reply_to:
                raise ReplyError("it does not reply to the message that was sent")
        except (ReplyError, ReplyTooLargeError, UndeliverableError) as error:
            reply = unusable(asked, error)
        self._link.confirm(announced.message_id)
        return reply

    def _fetched(self, objects: Iterable[str], most_bytes: int) -> dict[str, bytes] | None:
        """The contents of these objects; None if the exchange ends before all have arrived."""
        contents: dict[str, bytes] = {}
        for object_id in objects:
            content = self._waited_for(object_id, most_bytes)
            if content is None:
                return None
            contents[object_id] = content
            most_bytes -= len(content)
        return contents

    def _waited_for(self, object_id: str, most_bytes: int) -> bytes | None:
        pause = PAUSES[0]
        while not self._stop.is_set():
            try:
                content = self._link.content(object_id, most_bytes)
            except ConnectionError:
                content = None
            except PermissionError:
                return None  # asked for again by `_begin`, whose request ends the run as Flower does
            if content is not None:
                return content
            self._stop.wait(pause)
            pause = min(2 * pause, PAUSES[1])
        return None


def unusable(message: Message, error: Exception) -> Message:
    """The reply of the node that got `message` when what it sent is not used: an error with the reason."""
    return Message(Error(wire.UNUSABLE, str(ReplyError(f"what it sent is not used: {error}"))), reply_to=message)
