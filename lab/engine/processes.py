"""Copies of this process, made by a copy that does nothing else; each has a connection to the original."""

from __future__ import annotations

import functools
import gc
import os
import pickle
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fedstride.processes import forks, unix_signals

Body = Callable[[int, socket.socket], None]
"""What a copy does: (number, connection to the original) -> None."""


class WorkerTemplate:
    """A copy of this process, as it is now, that makes copies of itself on demand.

    Open it before the process has other threads: a copy has only the thread that made it, and a lock that another
    one held stays closed.
    """

    def __init__(self, body: Body) -> None:
        self._connection, other = socket.socketpair()
        gc.collect()
        gc.freeze()  # what exists now is never examined again, so its pages stay shared
        self.process = _copied(lambda: _make_copies(other, body), self._connection)
        gc.unfreeze()
        other.close()

    def make(self, number: int) -> tuple[int, socket.socket]:
        """A new copy: its process id, and the connection to it. Raises OSError if it cannot be made."""
        _send(self._connection, ("make", number))
        answer, files, _, _ = socket.recv_fds(self._connection, 4096, 1)
        if not answer:
            raise OSError("the process that starts workers has ended")
        value = pickle.loads(answer)
        if isinstance(value, OSError):
            raise value
        return value, socket.socket(fileno=files[0])

    def ended(self, process: int) -> str:
        """How a copy ended, in words. It must have closed its connection."""
        try:
            _send(self._connection, ("ended", process))
            status = pickle.loads(self._connection.recv(4096))
        except (OSError, EOFError):
            return "ended"
        if os.WIFSIGNALED(status):
            return f"was ended by {_name_of(os.WTERMSIG(status))}"
        return f"ended with code {os.waitstatus_to_exitcode(status)}"

    def close(self) -> None:
        """End the template. Copies end when their connections are closed."""
        self._connection.close()
        with suppress(ChildProcessError):
            os.waitpid(self.process, 0)


def _name_of(number: int) -> str:
    """The name of a signal; real-time signals have none."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def ready() -> None:
    """Let Ctrl-C and SIGTERM arrive in this copy; its handlers must be in place. Earlier ones arrive now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, unix_signals.NUMBERS)


def _make_copies(connection: socket.socket, body: Body) -> None:
    """Answer requests until the original closes the connection."""
    # They are sent to all processes of a command, and the original acts on them. In a copy they wait for `ready`.
    signal.pthread_sigmask(signal.SIG_BLOCK, unix_signals.NUMBERS)
    while request := connection.recv(4096):
        kind, value = pickle.loads(request)
        if kind == "ended":
            _send(connection, _status(value))
            continue
        mine, other = socket.socketpair()
        try:
            process = _copied(functools.partial(body, value, mine), connection, other)
        except OSError as error:
            _send(connection, error)
        else:
            socket.send_fds(connection, [pickle.dumps(process)], [other.fileno()])
        mine.close()
        other.close()
    with suppress(ChildProcessError):
        while True:  # a child that nobody waits for would stay in the table of processes
            os.wait()


def _status(process: int) -> int:
    try:
        return os.waitpid(process, 0)[1]
    except ChildProcessError:
        return 0


def _copied(body: Callable[[], None], *connections: socket.socket) -> int:
    """A copy of this process, without these connections, that calls `body`; its process id."""

    def work() -> None:
        for connection in connections:
            connection.close()
        with suppress(EOFError, BrokenPipeError, ConnectionResetError):  # the original has ended
            body()

    return forks.forked(work)


def _send(connection: socket.socket, value: Any) -> None:
    connection.sendall(pickle.dumps(value))
