"""The messages between a node and its template, over one socket whose end says that the other has ended.

With the order to start a process comes a descriptor: the process's end of its connection to the node.
"""

from __future__ import annotations

import json
import os
import select
import socket
from typing import Any, NamedTuple


class Start(NamedTuple):
    """To the template: start a process for a message."""

    number: int  # counts the processes of a node


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

    def send(self, order: Order, descriptor: int | None = None) -> bool:
        """Send, with a copy of this descriptor; False if the other side has ended."""
        data = json.dumps([type(order).__name__, *order]).encode()
        try:
            socket.send_fds(self._socket, [data], [] if descriptor is None else [descriptor])
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def receive(self) -> tuple[Order, int | None] | None:
        """Wait for the next message, and the descriptor that comes with it; None if the other side has ended."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, _MOST_BYTES, 1)
        except ConnectionResetError:
            return None
        if not data:
            return None
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        name, *values = json.loads(data)
        order: Any = _KINDS[name](*values)
        return order, (descriptors[0] if descriptors else None)

    def arrives(self, seconds: float) -> bool:
        """Wait for a message or the end of the other side, at most so long."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(max(seconds, 0.0) * 1000))

    def close(self) -> None:
        """Close this end."""
        self._socket.close()


def pair() -> tuple[socket.socket, socket.socket]:
    """The two ends of a connection that keeps messages apart."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
