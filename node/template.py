"""The template: a process that has imported what ClientApps need, and forks a minder for each message.

It is started afresh, not forked from the node, so it never has a key or a message. It has no threads of Python, no
connection but the one to its node, and never uses a GPU, so that a fork of it is like a process that has just
imported the same packages. It ends, with all its forks, when the node ends. Of the app that a run brings it keeps
nothing: each process imports that app itself (`worker.py`).

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
from pathlib import Path
from typing import NamedTuple, NoReturn

import client_app
from confinement import close_all_but, no_dump
from fedstride import lifetimes

from . import minder, worker
from .orders import DESCRIPTORS, Ended, Kill, Line, Order, Ready, Remove, Start
from .removal import remove_all_but

OTHERS_SECONDS = 0.2
"""Between two looks for child processes that have ended, while there are any that report nothing."""

STOP_SECONDS = 4.0
"""How long the minders get to end the processes of messages when the node has ended."""

MOST_REPORT = 4096  # bytes
NOT_STARTED = "its process was not started"


class Fork(NamedTuple):
    """The minder of a message's process."""

    pid: int
    pidfd: int
    report: int  # the pipe over which it says how the process has ended


class Template:
    """The forks of this process.

    `line` leads to the node; `preloaded`: the packages that forks have and Flower's own program has not.
    """

    def __init__(self, line: Line, preloaded: set[str]) -> None:
        self._line = line
        self._preloaded = preloaded
        self._selector = selectors.DefaultSelector()
        self._selector.register(line, selectors.EVENT_READ)
        self._forks: dict[int, Fork] = {}  # by number
        self._has_others = False  # child processes that are not in `_forks`

    def serve(self) -> None:
        """Follow the node's orders until it ends."""
        while True:
            events = self._selector.select(OTHERS_SECONDS if self._has_others else None)
            self._reap_others()
            for key, _ in events:
                if key.data is not None:
                    self._ended(key.data)
                elif (received := self._line.receive()) is None:
                    return
                else:
                    self._follow(*received)

    def _follow(self, order: Order, descriptors: list[int]) -> None:
        if isinstance(order, Start):
            self._start(order, descriptors)
        elif isinstance(order, Remove):
            self._remove(order)
        elif isinstance(order, Kill):
            self._kill(order.number)

    def _start(self, order: Start, descriptors: list[int]) -> None:
        """Fork the minder of a process that gets these descriptors, which only the process then has."""
        try:
            if len(descriptors) < DESCRIPTORS:  # the system gives a process only so many
                self._line.send(Ended(order.number, f"{NOT_STARTED}: too many open files"))
                return
            self._fork(order, *descriptors)
        except OSError as error:
            self._line.send(Ended(order.number, f"{NOT_STARTED}: {error.strerror}"))
        finally:
            for each in descriptors:
                os.close(each)

    def _fork(self, order: Start, connection: int, output: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        report, reported = os.pipe()
        template = os.getpid()
        try:
            pid = os.fork()
            if pid == 0:
                self._mind(order, connection, output, reported, template)
            self._forks[order.number] = Fork(pid, os.pidfd_open(pid), report)
            self._selector.register(report, selectors.EVENT_READ, order.number)
        finally:
            os.close(reported)

    def _mind(self, order: Start, connection: int, output: int, reported: int, template: int) -> NoReturn:
        """In the fork: close what belongs to the template, and mind a process."""
        try:
            self._line.close()
            self._selector.close()
            close_all_but({0, 1, 2, connection, output, reported})

            def work(minder: int) -> NoReturn:
                worker.work(connection, output, minder, self._preloaded)

            minder.mind(work, {connection, output}, reported, template, order.watched)
        finally:
            os._exit(1)

    def _ended(self, number: int) -> None:
        """Tell the node how a process has ended: what its minder reports, or else how the minder has ended."""
        fork = self._forks[number]
        if not (how := os.read(fork.report, MOST_REPORT).decode(errors="replace")):
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fork.pidfd, signal.SIGKILL)
            how = f"the process that minds it has ended ({os.waitstatus_to_exitcode(os.waitpid(fork.pid, 0)[1])})"
        self._selector.unregister(fork.report)
        os.close(fork.report)
        os.close(fork.pidfd)
        del self._forks[number]
        self._line.send(Ended(number, how))
        self._has_others = True  # the minder, which removes the scratch folder

    def _remove(self, order: Remove) -> None:
        """Fork a process that removes what is left in a folder."""
        if os.fork() == 0:
            try:
                remove_all_but(Path(order.folder), order.kept)
            finally:
                os._exit(0)
        self._has_others = True

    def _reap_others(self) -> None:
        """Take note of ended processes that report nothing, and of those that a minder has left behind."""
        minders = {fork.pid for fork in self._forks.values()}
        try:
            while self._has_others and (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)):
                if ended.si_pid in minders:
                    return  # `serve` reads its report, and then comes here again
                os.waitpid(ended.si_pid, 0)
        except ChildProcessError:  # there are no child processes
            self._has_others = False

    def _kill(self, number: int) -> None:
        """Have a minder end its process."""
        if number in self._forks:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._forks[number].pidfd, signal.SIGTERM)

    def stop(self) -> None:
        """End all processes of messages."""
        self._selector.unregister(self._line)
        for number in self._forks:
            self._kill(number)
        deadline = time.monotonic() + STOP_SECONDS
        while self._forks and (left := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                self._ended(key.data)


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
    no_dump()  # a core, or another process of this user, would show what forks have in memory
    preloaded, problem = warm()
    line.send(Ready(problem))
    template = Template(line, preloaded)
    try:
        template.serve()
    finally:
        template.stop()


if __name__ == "__main__":
    main()
