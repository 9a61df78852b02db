"""What a node does with its data, message by message, as lines of its log; without a line it does nothing.

It is called by the node's loop (`loop.py`), and never executes anything of the app.
What it writes of a reply it has measured itself (bytes, seconds), or read in the reply (`examples`), where the app
says what it likes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from fedstride.error_kinds import ErrorKind, Fault
from fedstride.errors import printable

from .log_file import LogFile

MOST_TEXT = 1000  # characters of a text from elsewhere in a line


class ArrivedMessage(NamedTuple):
    """A message for this node, before anything is done with it."""

    id: str
    run: int
    task: str  # train, evaluate, query
    app: str  # publisher/name and version
    app_hash: str  # SHA-256 of the bundle, over which the SuperLink and every node have the same
    overrides: str  # what the submitter asked for


class LoggedReply(NamedTuple):
    """A reply that is about to leave this node."""

    to: str  # the id of the message
    bytes: int
    examples: int | None  # as the app says
    error: str  # empty: none
    refused: bool = False  # the message was not processed


class RefusedError(Exception):
    """The message is not processed. The text is for the node's own log; `told` is what the server is told."""

    def __init__(self, reason: str, kind: ErrorKind = ErrorKind.MESSAGE, key: str = "") -> None:
        super().__init__(reason)
        self.told = Fault(kind, key)


class NodeLog:
    """Writes a line before a message is processed, and one before its reply leaves.

    `journal`: None for no log. `now`: the time in seconds.
    """

    def __init__(self, journal: LogFile | None, now: Callable[[], float] = time.monotonic) -> None:
        self._journal = journal
        self._now = now
        self._open: dict[str, tuple[float, dict[str, Any]]] = {}  # messages without a reply

    def started(self, node: str, command: str) -> None:
        """The node starts. Raises RefusedError if that cannot be logged."""
        self._write("started", name=node, version=command)

    def arrived(self, message: ArrivedMessage) -> None:
        """A message has arrived. Raises RefusedError if that cannot be logged."""
        facts = {
            "run": str(message.run),
            "task": message.task,
            "app": _text(message.app),
            "app_hash": _text(message.app_hash),
            "overrides": _text(message.overrides),
            "message": _text(message.id),
        }
        self._write("received", **facts)
        self._open[message.id] = (self._now(), {key: facts[key] for key in ("run", "task", "app_hash", "message")})

    def asks(self, message: str, config: Mapping[str, Any]) -> None:
        """The values in an arrived message say which strategy and privacy it asks for, and which round it is."""
        if message in self._open:
            self._open[message][1].update({key: _plain(value) for key, value in config.items()})

    def refused(self, message: str, reason: str) -> None:
        """A message is not processed. This cannot fail: if it is not logged, nothing has been done either."""
        _, facts = self._open.pop(message, (0.0, {"message": _text(message)}))
        try:
            self._write("refused", **facts, reason=_text(reason))
        except RefusedError:
            return

    def leaves(self, reply: LoggedReply) -> None:
        """A reply is about to leave. Raises RefusedError if that cannot be logged."""
        since, facts = self._open.pop(reply.to, (self._now(), {"message": _text(reply.to)}))
        seconds = round(self._now() - since, 3)
        figures = {"examples": reply.examples, "bytes_out": reply.bytes, "seconds": seconds}
        if reply.error:
            self._write("refused" if reply.refused else "failed", **facts, **figures, reason=_text(reply.error))
        else:
            self._write("answered", **facts, **figures)

    def _write(self, event: str, **values: Any) -> None:
        if self._journal is None:
            return
        try:
            self._journal.write(event, **values)
        except OSError as error:
            raise RefusedError(
                f"this node's log {self._journal.path} cannot be written ({error.strerror or error}), so it does "
                "nothing with its data; make it writable, or free disk space",
                ErrorKind.LOG,
            ) from error


def _text(text: str) -> str:
    return printable(text[:MOST_TEXT])


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float)) else _text(str(value))
