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
from dataclasses import dataclass
from typing import TypeVar

from fedstride.flower.link import Head, Link, NotThereYetError, TooLargeError, UnreachableError
from fedstride.pauses import Growing

AT_ONCE = 2
"""Requests under way: a SuperLink with two cores answers no faster with more."""

SHORTEST, LONGEST = 0.05, 1.0
"""Pauses, in seconds, before a part is asked for that has not arrived at the SuperLink."""

AGAIN, AGAIN_LONGEST = 0.5, 20.0
"""Pauses, in seconds, before a SuperLink that cannot be reached is asked again."""

MOST_BYTES = 4 * 2**30

_log = logging.getLogger("flwr").log

T = TypeVar("T")


@dataclass(frozen=True)
class Until:
    """The end of a message's time, on the clock of `time.monotonic`."""

    moment: float

    @classmethod
    def of(cls, head: Head) -> Until:
        """After this, the SuperLink accepts no reply."""
        return cls(time.monotonic() + max(head.created + head.ttl - time.time(), 0.0))

    def left(self) -> float:
        """Seconds."""
        return self.moment - time.monotonic()


def persistent(call: Callable[[], T], until: Until) -> T:
    """The result of the call, which is repeated while the SuperLink cannot be reached. Raises LinkError."""
    pauses, is_failing = Growing(AGAIN, AGAIN_LONGEST), False
    while True:
        try:
            return call()
        except UnreachableError as error:
            pause = pauses.pause()
            if pause > until.left():
                raise
            if not is_failing:
                _log(logging.WARNING, "the SuperLink gives no answer (%s); it is asked until it does", error)
            is_failing = True
        time.sleep(pause)


def fetched(
    link: Link, run: int, ids: Sequence[str], until: Until, most_bytes: int = MOST_BYTES
) -> dict[str, bytes]:
    """The contents of all objects. Raises LinkError, at the latest when the message's time is over."""
    found: dict[str, bytes] = {}
    size = 0
    for object_id, content in _in_twos(lambda each: _content(link, run, each, until), ids):
        size += len(content)
        if size > most_bytes:
            raise TooLargeError(f"a message of more than {most_bytes} bytes")
        found[object_id] = content
    return found


def handed_over(link: Link, run: int, session: str, contents: Mapping[str, bytes], until: Until) -> None:
    """Send these objects of a reply, the small ones first. Raises LinkError."""

    def put(object_id: str) -> None:
        persistent(lambda: link.put(run, session, object_id, contents[object_id]), until)

    for _ in _in_twos(put, sorted(contents, key=lambda each: len(contents[each]))):
        pass


def _content(link: Link, run: int, object_id: str, until: Until) -> bytes:
    pauses = Growing(SHORTEST, LONGEST)
    while True:
        try:
            return persistent(lambda: link.content(run, object_id), until)
        except NotThereYetError:
            if until.left() <= 0:
                raise
        time.sleep(pauses.pause())


def _in_twos(call: Callable[[str], T], ids: Sequence[str]) -> Iterator[tuple[str, T]]:
    """(id, result) of each call, in order; at most `AT_ONCE` under way, so that at most these are not counted."""
    waiting: deque[tuple[str, Future[T]]] = deque()
    for each in ids:
        if len(waiting) == AT_ONCE:
            first, future = waiting.popleft()
            yield first, future.result()
        waiting.append((each, _started(call, each)))
    for first, future in waiting:
        yield first, future.result()


def _started(call: Callable[[str], T], given: str) -> Future[T]:
    """The future result of a call in a thread that does not keep the process alive."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(call(given))
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="part", daemon=True).start()
    return future
