"""The parts of a message: fetched under bounds before anything is joined, and handed over two at a time.

Knows links and bytes. Each request is repeated while the SuperLink cannot be reached.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeVar

from fedstride.flower.for_nodes.connection import (
    FailingError,
    Link,
    MessageHead,
    NotThereYetError,
    TooLargeError,
    UnreachableError,
)
from fedstride.messages import wire
from fedstride.processes.polling import Growing

AT_ONCE = 2
"""Requests under way: a SuperLink with two cores answers no faster with more."""

SHORTEST, LONGEST = 0.05, 1.0
"""Pauses, in seconds, before a part is asked for that has not arrived at the SuperLink."""

AGAIN, AGAIN_LONGEST = 0.5, 20.0
"""Pauses, in seconds, before a SuperLink that cannot be reached is asked again."""

FAILING_SECONDS = 600.0
"""How long a request is repeated that the SuperLink answers with an error of its own."""

NO_ANSWER = "the SuperLink does not answer as it should (%s); it is asked again until it does"

MOST_SECONDS = 7 * 86400.0
"""Of the time of a message."""

_log = logging.getLogger("flwr").log

T = TypeVar("T")


class Until:
    """The end of a message's time, on the clock of `time.monotonic`."""

    def __init__(self, moment: float) -> None:
        self.moment = moment
        self._given_up = threading.Event()

    @classmethod
    def of(cls, head: MessageHead) -> Until:
        """After this, the SuperLink accepts no reply."""
        left = head.created + min(head.ttl, MOST_SECONDS) - time.time()
        return cls(time.monotonic() + max(left, 0.0))

    def left(self) -> float:
        """Seconds; below 0 if nobody waits any more."""
        return -1.0 if self._given_up.is_set() else self.moment - time.monotonic()

    def give_up(self) -> None:
        """Nobody waits any more: requests that would be repeated are not."""
        self._given_up.set()

    def wait(self, seconds: float) -> None:
        """Wait so long, or until it is given up."""
        self._given_up.wait(seconds)


def persistent(call: Callable[[], T], until: Until) -> T:
    """The result of the call, which is repeated while the SuperLink cannot be reached. Raises LinkError.

    A SuperLink that answers with an error of its own is asked for ten minutes: it may never accept this request.
    """
    pauses, is_failing, since = Growing(AGAIN, AGAIN_LONGEST), False, time.monotonic()
    while True:
        try:
            return call()
        except UnreachableError as error:
            pause = pauses.pause()
            too_long = isinstance(error, FailingError) and time.monotonic() - since > FAILING_SECONDS
            if pause > until.left() or too_long:
                raise
            if not is_failing:
                _log(logging.WARNING, NO_ANSWER, error)
            is_failing = True
        until.wait(pause)


def fetched(
    link: Link, run: int, ids: Sequence[str], until: Until, most_bytes: int = wire.MESSAGE_BYTES
) -> dict[str, bytes]:
    """The contents of all objects. Raises LinkError, at the latest when the message's time is over."""
    contents: dict[str, bytes] = {}
    size = 0
    for object_id, content in _in_twos(lambda part, shared: _content(link, run, part, shared), ids, until):
        size += len(content)
        if size > most_bytes:
            raise TooLargeError(f"a message of more than {most_bytes} bytes")
        contents[object_id] = content
    return contents


def handed_over(link: Link, run: int, session: str, contents: Mapping[str, bytes], until: Until) -> None:
    """Send these objects of a reply, the small ones first. Raises LinkError."""

    def put(object_id: str, shared: Until) -> None:
        persistent(lambda: link.put(run, session, object_id, contents[object_id]), shared)

    for _ in _in_twos(put, sorted(contents, key=lambda part: len(contents[part])), until):
        pass


def _content(link: Link, run: int, object_id: str, until: Until) -> bytes:
    pauses = Growing(SHORTEST, LONGEST)
    while True:
        try:
            return persistent(lambda: link.content(run, object_id), until)
        except NotThereYetError:
            if until.left() <= 0:
                raise
        until.wait(pauses.pause())


def _in_twos(call: Callable[[str, Until], T], ids: Sequence[str], until: Until) -> Iterator[tuple[str, T]]:
    """(id, result) of each call, in order. At most `AT_ONCE` are under way; after an error, the others give up."""
    waiting: deque[tuple[str, Future[T]]] = deque()
    shared = Until(until.moment)
    try:
        for object_id in ids:
            if len(waiting) == AT_ONCE:
                first, future = waiting.popleft()
                yield first, future.result()
            waiting.append((object_id, _started(call, object_id, shared)))
        for first, future in waiting:
            yield first, future.result()
    finally:
        shared.give_up()


def _started(call: Callable[[str, Until], T], given: str, until: Until) -> Future[T]:
    """The future result of a call in a thread that does not keep the process alive."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call(given, until))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="part", daemon=True).start()
    return future
