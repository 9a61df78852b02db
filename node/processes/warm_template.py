"""The template: a process that has imported what ClientApps need, and forks the supervisors of messages.

It is started afresh, not forked from the node, so it never has a key or a message. It has no threads of Python, no
connection but the one to its node, and never uses a GPU, so that a fork of it is like a process that has just
imported the same packages. It ends, with all its forks, when the node ends. Of the app that a run brings it keeps
nothing: each process imports that app itself (`worker.py`).

    python -m node.processes.warm_template DESCRIPTOR
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
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import client_app
from confinement import close_all_but, no_dump
from fedstride.processes import forks

from ..removal import remove_named
from . import supervisor as supervising
from . import worker
from .internal_messages import DESCRIPTORS, Channel, Kill, Order, ProcessEnded, Ready, Remove, Start, pair

OTHERS_SECONDS = 0.2
"""Between two looks for child processes that have ended, while there are any that report nothing."""

STOP_SECONDS = 4.0
"""How long the supervisors get to end the processes of messages when the node has ended."""

FREE_SUPERVISORS = 2
"""That wait for a message. A message comes while the process of the one before may still have to end."""

NOT_STARTED = "its process was not started"


@dataclass(eq=False)
class RunningSupervisor:
    """A supervisor, and what it does."""

    pid: int
    pidfd: int
    line: Channel
    number: int | None = None  # of its process; None: it has none
    is_free: bool = True  # to mind another one


class Template:
    """The forks of this process.

    `line` leads to the node; `preloaded`: the packages that forks have and Flower's own program has not.
    """

    def __init__(self, line: Channel, preloaded: set[str]) -> None:
        self._line = line
        self._preloaded = preloaded
        self._selector = selectors.DefaultSelector()
        self._selector.register(line, selectors.EVENT_READ)
        self._supervisors: list[RunningSupervisor] = []
        self._ending: set[int] = set()  # processes that end by themselves: former supervisors, and removals
        self._has_others = False  # child processes that are not in `_supervisors`
        self._watched_until = 0.0  # until then there may be some, also if there are none now

    def prepare(self) -> None:
        """Fork a supervisor for the first message."""
        self._new_supervisor()

    def serve(self) -> None:
        """Follow the node's orders until it ends."""
        while True:
            events = self._selector.select(OTHERS_SECONDS if self._has_others else None)
            self._reap_others()
            for key, _ in events:
                if key.data is not None:
                    self._hear(key.data)
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

    # ------------------------------------------------------------ supervisors

    def _start(self, order: Start, descriptors: list[int]) -> None:
        """Have a supervisor start a process that gets these descriptors, which only the process then has."""
        try:
            if len(descriptors) < DESCRIPTORS:  # the system gives a process only so many
                self._line.send(ProcessEnded(order.number, f"{NOT_STARTED}: too many open files"))
                return
            supervisor = next((peer for peer in self._supervisors if peer.is_free), None) or self._new_supervisor()
            supervisor.number, supervisor.is_free = order.number, False
            supervisor.line.send(order, *descriptors)
        except OSError as error:
            self._line.send(ProcessEnded(order.number, f"{NOT_STARTED}: {error.strerror}"))
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _new_supervisor(self) -> RunningSupervisor:
        ours, theirs = pair()
        template = os.getpid()
        with theirs:
            pid = forks.forked(lambda: self._supervise(theirs, template), end=None)
        supervisor = RunningSupervisor(pid, os.pidfd_open(pid), Channel(ours))
        self._supervisors.append(supervisor)
        self._selector.register(supervisor.line, selectors.EVENT_READ, supervisor)
        return supervisor

    def _supervise(self, connected: socket.socket, template: int) -> NoReturn:
        """In the fork: close what belongs to the template, and supervise processes."""
        self._line.close()
        self._selector.close()
        close_all_but({0, 1, 2, connected.fileno()})

        def work(connection: int, output: int) -> NoReturn:
            worker.work(connection, output, self._preloaded)

        supervising.serve(Channel(connected), template, work)

    def _hear(self, supervisor: RunningSupervisor) -> None:
        """Pass on how a process has ended. A supervisor that has ended itself takes its process with it."""
        received = supervisor.line.receive()
        if received is not None and isinstance(received[0], ProcessEnded):
            supervisor.number = None
            self._line.send(received[0])
        elif received is not None:
            supervisor.is_free = True
            if sum(peer.is_free for peer in self._supervisors) > FREE_SUPERVISORS:
                self._part_with(supervisor)
        else:
            if supervisor.number is not None:
                self._watched_until = (
                    time.monotonic() + STOP_SECONDS
                )  # its processes become ours one after the other
                self._line.send(ProcessEnded(supervisor.number, "the process that minds it has ended"))
            self._part_with(supervisor)

    def _part_with(self, supervisor: RunningSupervisor) -> None:
        """Let a supervisor end, which it does when it has nothing to do."""
        self._selector.unregister(supervisor.line)
        supervisor.line.close()
        os.close(supervisor.pidfd)
        self._supervisors.remove(supervisor)
        self._ending.add(supervisor.pid)
        self._has_others = True

    def _kill(self, number: int) -> None:
        """Have a supervisor end its process."""
        for supervisor in self._supervisors:
            if supervisor.number == number:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(supervisor.pidfd, signal.SIGTERM)

    # ------------------------------------------------------------ other child processes

    def _remove(self, order: Remove) -> None:
        """Fork a process that removes what is left in a folder."""

        def work() -> None:
            close_all_but({0, 1, 2})
            remove_named(Path(order.folder), order.names)

        with contextlib.suppress(OSError):  # too many processes; the node orders it again
            self._ending.add(forks.forked(work, end=None))
            self._has_others = True

    def _reap_others(self) -> None:
        """Take note of child processes that have ended, and kill those that a supervisor has left behind.

        A supervisor leaves none, unless it was killed itself.
        """
        if not self._has_others:
            return
        had_orphans = False
        supervisors = {supervisor.pid for supervisor in self._supervisors}
        for pid in set(forks.children(os.getpid())) - supervisors - self._ending:
            had_orphans = True
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if ended.si_pid in supervisors:
                    return  # `serve` hears the end of its line, and then comes here again
                os.waitpid(ended.si_pid, 0)
                self._ending.discard(ended.si_pid)
        except ChildProcessError:  # there are no child processes
            self._has_others = time.monotonic() < self._watched_until
        else:
            self._has_others = had_orphans or bool(self._ending) or time.monotonic() < self._watched_until

    def stop(self) -> None:
        """End all processes of messages, and the supervisors."""
        self._selector.unregister(self._line)
        for supervisor in list(self._supervisors):
            if supervisor.number is None:
                self._part_with(supervisor)
            else:
                self._kill(supervisor.number)
        deadline = time.monotonic() + STOP_SECONDS
        while self._supervisors and (left := deadline - time.monotonic()) > 0:
            for key, _ in self._selector.select(left):
                self._hear(key.data)
                if key.data.number is None and key.data in self._supervisors:
                    self._part_with(key.data)


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
    line = Channel(socket.socket(fileno=int(sys.argv[1])))
    forks.inherit_orphans()
    no_dump()  # a core, or another process of this user, would show what forks have in memory
    preloaded, problem = warm()
    template = Template(line, preloaded)
    template.prepare()
    line.send(Ready(problem))
    try:
        template.serve()
    finally:
        template.stop()


if __name__ == "__main__":
    main()
