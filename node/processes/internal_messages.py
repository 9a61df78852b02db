"""The messages between a node, its template and its supervisors, over sockets whose end says that the other has
ended.

With the order to start a process come two descriptors: the process's end of its connection to the node, and the
pipe for what the app writes to its output.
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
    watched: dict[str, Any]  # for its supervisor: folders that it may fill, its scratch folder, and limits
    seconds: float  # after which its supervisor ends it, whatever the node does


class Remove(NamedTuple):
    """To the template: have a process remove what has these names in a folder."""

    folder: str
    names: list[str]


class Kill(NamedTuple):
    """To the template: kill the process with this number."""

    number: int


class Ready(NamedTuple):
    """From the template: everything is imported."""

    problem: str  # what could not be imported, and why; empty if nothing


class Free(NamedTuple):
    """From a supervisor: nothing is left of the process and its scratch folder, and the next one can come."""


class ProcessEnded(NamedTuple):
    """From a supervisor, and passed on by the template: a process ended, and all that it had started."""

    number: int
    reason: str  # "exit code 0", "signal 6 (SIGABRT)"


_KINDS = {kind.__name__: kind for kind in (Start, Remove, Kill, Ready, Free, ProcessEnded)}
_MOST_BYTES = 65536
DESCRIPTORS = 2

Order = Start | Remove | Kill | Ready | Free | ProcessEnded


class Channel:
    """One end of the connection."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    def fileno(self) -> int:
        """The descriptor, for select."""
        return self._socket.fileno()

    def send(self, order: Order, *descriptors: int) -> bool:
        """Send, with copies of these descriptors; False if the other side has ended."""
        data = json.dumps([type(order).__name__, *order]).encode()
        try:
            socket.send_fds(self._socket, [data], descriptors)
        except (BrokenPipeError, ConnectionResetError):
            return False
        return True

    def receive(self) -> tuple[Order, list[int]] | None:
        """Wait for the next message, and the descriptors that come with it; None if the other side has ended."""
        try:
            data, descriptors, _, _ = socket.recv_fds(self._socket, _MOST_BYTES, DESCRIPTORS)
        except ConnectionResetError:
            return None
        if not data:
            return None
        for descriptor in descriptors:
            os.set_inheritable(descriptor, False)
        name, *values = json.loads(data)
        order: Any = _KINDS[name](*values)
        return order, descriptors

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
