"""The template: a process that has imported what ClientApps need, and forks one process for each message.

It has no threads of Python, no connection but the one to its SuperNode, and never uses a GPU, so that a fork of it
is like a process that has just imported the same packages. It ends, with all its forks, when the SuperNode ends.
Of the app that a run brings it keeps nothing: each fork imports that app itself (`worker.py`).

    python -m lab.node.template DESCRIPTOR
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

from . import seams, worker
from .orders import Ended, Kill, Line, Ready, Start

ORPHAN_SECONDS = 0.2
"""How long after the end of a fork the processes that it left behind, which are killed, are looked for again."""

STOP_SECONDS = 2.0
"""How long processes get to end by themselves when the SuperNode has ended."""


class Template:
    """The forks of this process.

    `line` leads to the SuperNode; `preloaded`: the packages that forks have and Flower's own program has not.
    """

    def __init__(self, line: Line, preloaded: set[str]) -> None:
        self._line = line
        self._preloaded = preloaded
        self._selector = selectors.DefaultSelector()
        self._selector.register(line, selectors.EVENT_READ)
        self._forks: dict[int, tuple[int, int]] = {}  # process id and descriptor, by number
        self._may_have_orphans = False

    def serve(self) -> None:
        """Follow the SuperNode's orders until it ends."""
        while True:
            events = self._selector.select(ORPHAN_SECONDS if self._may_have_orphans else None)
            self._may_have_orphans = self._may_have_orphans and bool(events)
            self._reap_orphans()
            for key, _ in events:
                if key.data is not None:
                    self._reap(key.data)
                elif (order := self._line.receive()) is None:
                    return
                elif isinstance(order, Start):
                    self._fork(order)
                elif isinstance(order, Kill):
                    self._signal(order.number, signal.SIGKILL)

    def _fork(self, order: Start) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        template = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._work(order, template)
        descriptor = os.pidfd_open(pid)
        self._forks[order.number] = pid, descriptor
        self._selector.register(descriptor, selectors.EVENT_READ, order.number)

    def _work(self, order: Start, template: int) -> NoReturn:
        """In the fork: close what belongs to the template, and work."""
        try:
            self._line.close()
            self._selector.close()
            for _, descriptor in self._forks.values():
                os.close(descriptor)
        finally:
            worker.work(order.token, order.place, template, self._preloaded)

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


def reason(status: int) -> str:
    """How a process ended, from the status that `waitpid` gives."""
    code = os.waitstatus_to_exitcode(status)
    return f"exit code {code}" if code >= 0 else f"signal {-code} ({signal.Signals(-code).name})"


def warm() -> tuple[set[str], str]:
    """Import what ClientApps need. Returns the packages that Flower's own program would not have imported yet.

    Also what could not be imported, and why; empty if nothing. To know what this project's ClientApp needs,
    this installation's own is imported, and then forgotten, because a run brings its own version of it.
    """
    seams.import_client()
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
    """Serve the SuperNode at the other end of the descriptor."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the SuperNode, whose end ends this process
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
