"""The messages between a SuperNode and its template, over one socket whose end says that the other has ended."""

from __future__ import annotations

import json
import select
import socket
from typing import Any, NamedTuple

from .seams import Place


class Start(NamedTuple):
    """To the template: start a process for a task."""

    number: int  # counts the processes of a SuperNode
    token: str
    place: Place


class Kill(NamedTuple):
    """To the template: kill the process with this number."""

    number: int


class Ready(NamedTuple):
    """From the template: everything is imported."""

    problem: str  # what could not be imported, and why; empty if nothing


class Ended(NamedTuple):
    """From the template: a process ended."""

    number: int
    reason: str  # "exit code 0", "signal 6 (SIGABRT)"


_KINDS = {kind.__name__: kind for kind in (Start, Kill, Ready, Ended)}
_MOST_BYTES = 65536

Order = Start | Kill | Ready | Ended


class Line:
    """One end of the connection."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def fileno(self) -> int:
        """The descriptor, for select."""
        return self._socket.fileno()

    def send(self, order: Order) -> bool:
        """Send; False if the other side has ended."""
        try:
            self._socket.send(json.dumps([type(order).__name__, *order]).encode())
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def receive(self) -> Order | None:
        """Wait for the next message; None if the other side has ended."""
        try:
            data = self._socket.recv(_MOST_BYTES)
        except ConnectionResetError:
            return None
        if not data:
            return None
        name, *values = json.loads(data)
        order: Any = _KINDS[name](*values)
        return Start(order.number, order.token, Place(*order.place)) if isinstance(order, Start) else order

    def arrives(self, seconds: float) -> bool:
        """Wait for a message or the end of the other side, at most so long."""
        return bool(select.select([self._socket], [], [], max(seconds, 0.0))[0])

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """The two ends of a connection that keeps messages apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
