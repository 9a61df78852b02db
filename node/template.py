"""The template: a process that has imported what ClientApps need, and forks one process for each message.

It is started afresh, not forked from the node, so it never has a key or a message. It has no threads of Python, no
connection but the one to its node, and never uses a GPU, so that a fork of it is like a process that has just
imported the same packages. It ends, with all its forks, when the node ends. Of the app that a run brings it keeps
nothing: each fork imports that app itself (`worker.py`).

    python -m node.template DESCRIPTOR
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import selectors
import signal
import socket
import sys
import time
from typing import NoReturn

import client_app
from fedstride import lifetimes

from . import worker
from .orders import Ended, Kill, Line, Ready, Start

ORPHAN_SECONDS = 0.2
"""How long after the end of a fork the processes that it left behind, which are killed, are looked for again."""

STOP_SECONDS = 2.0
"""How long processes get to end by themselves when the node has ended."""


class Template:
    """The forks of this process.

    `line` leads to the node; `preloaded`: the packages that forks have and Flower's own program has not.
    """

    def __init__(self, line: Line, preloaded: set[str]) -> None:
        self._line = line
        self._preloaded = preloaded
        self._selector = selectors.DefaultSelector()
        self._selector.register(line, selectors.EVENT_READ)
        self._forks: dict[int, tuple[int, int]] = {}  # process id and descriptor, by number
        self._may_have_orphans = False

    def serve(self) -> None:
        """Follow the node's orders until it ends."""
        while True:
            events = self._selector.select(ORPHAN_SECONDS if self._may_have_orphans else None)
            self._may_have_orphans = self._may_have_orphans and bool(events)
            self._reap_orphans()
            for key, _ in events:
                if key.data is not None:
                    self._reap(key.data)
                elif (received := self._line.receive()) is None:
                    return
                elif isinstance(received[0], Start):
                    self._start(received[0].number, received[1])
                elif isinstance(received[0], Kill):
                    self._signal(received[0].number, signal.SIGKILL)

    def _start(self, number: int, connection: int | None) -> None:
        """Fork a process for the message that comes over this descriptor, which only the fork then has."""
        if connection is None:  # the system gives a process only so many
            self._line.send(Ended(number, "its process was not started: too many open files"))
            return
        try:
            self._fork(number, connection)
        except OSError as error:
            self._line.send(Ended(number, f"its process was not started: {error.strerror}"))
        finally:
            os.close(connection)

    def _fork(self, number: int, connection: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        template = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._work(connection, template)
        descriptor = os.pidfd_open(pid)
        self._forks[number] = pid, descriptor
        self._selector.register(descriptor, selectors.EVENT_READ, number)

    def _work(self, connection: int, template: int) -> NoReturn:
        """In the fork: close what belongs to the template, and work."""
        try:
            self._line.close()
            self._selector.close()
            for _, descriptor in self._forks.values():
                os.close(descriptor)
            close_all_but({0, 1, 2, connection})
        finally:
            worker.work(connection, template, self._preloaded)

    def _reap(self, number: int) -> None:
        """Report a fork that ended, and kill the processes that it left behind."""
        self._signal(number, signal.SIGKILL)  # its group; its id is not used again before the next line
        pid, descriptor = self._forks.pop(number)
        _, status = os.waitpid(pid, 0)
        self._selector.unregister(descriptor)
        os.close(descriptor)
        self._line.send(Ended(number, reason(status)))
        self._may_have_orphans = True

    def _reap_orphans(self) -> None:
        """Take note of the ended processes that forks had started and left behind; this process inherits them."""
        forks = {pid for pid, _ in self._forks.values()}
        with contextlib.suppress(ChildProcessError):  # there are no child processes
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in forks:
                    return  # `serve` will reap it, and then come here again
                os.waitpid(ended.si_pid, 0)

    def _signal(self, number: int, what: signal.Signals) -> None:
        if number in self._forks:
            pid, _ = self._forks[number]
            for send in (os.kill, os.killpg):  # a fork may not have made its group yet
                try:
                    send(pid, what)
                except ProcessLookupError:
                    continue

    def stop(self) -> None:
        """End all forks: with SIGTERM, and SIGKILL for those that take too long."""
        for number in self._forks:
            self._signal(number, signal.SIGTERM)
        self._selector.unregister(self._line)
        deadline = time.monotonic() + STOP_SECONDS
        while self._forks and (left := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                self._reap(key.data)
        for number in list(self._forks):
            self._reap(number)


def close_all_but(kept: set[int]) -> None:
    """Close all other descriptors of this process, also those that a package has opened when it was imported."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in kept:
            with contextlib.suppress(OSError):  # that of the listing itself
                os.close(int(name))


def reason(status: int) -> str:
    """How a process ended, from the status that `waitpid` gives."""
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    name = next((each.name for each in signal.Signals if each == -code), "a real-time signal")
    return f"signal {-code} ({name})"


def warm() -> tuple[set[str], str]:
    """Import what ClientApps need. Returns the packages that Flower's own program would not have imported yet.

    Also what could not be imported, and why; empty if nothing. To know what this project's ClientApp needs,
    this installation's own is imported, and then forgotten, because a run brings its own version of it.
    """
    already = worker.packages()
    problem = ""
    try:
        importlib.import_module(f"{client_app.__name__}.app")
        importlib.import_module("numpy.random")  # which numpy imports when it is first used
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    worker.forget(worker.PROJECT)
    gc.collect()
    gc.freeze()  # so that collections in forks do not touch, and thereby copy, what they share
    return worker.packages() - already, problem


def main() -> None:
    """Serve the node at the other end of the descriptor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the node, whose end ends this process
    line = Line(socket.socket(fileno=int(sys.argv[1])))
    lifetimes.inherit_orphans()
    preloaded, problem = warm()
    line.send(Ready(problem))
    template = Template(line, preloaded)
    try:
        template.serve()
    finally:
        template.stop()


if __name__ == "__main__":
    main()
