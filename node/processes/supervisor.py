"""The supervisor of a message's process: starts it, watches what it uses, and ends it with all that it has
started.

A supervisor is a fork of the template that executes nothing of an app, and supervises one process at a time.
Where Landlock can limit signals, it can reach only what it has started, and ends that with one call; the app
cannot reach it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from confinement import ConfinementError, scope_signals
from fedstride.processes import forks

from ..policy.resource_limits import Limits, exceeded
from ..removal import remove
from .internal_messages import DESCRIPTORS, Channel, Free, ProcessEnded, Start

WATCH_SECONDS = 1.0
"""Between two looks at what the processes of a message use."""

END_SECONDS = 5.0
"""How long the end of killed processes is waited for."""

STILL_THERE = "; processes that it started are left, which the kernel does not end"

_SIGNALS = {signal.SIGCHLD, signal.SIGTERM}


Work = Callable[[int, int], NoReturn]
"""What a process does. It gets its connection to the node, and its output."""


def serve(line: Channel, template: int, work: Work) -> NoReturn:
    """Mind one process after the other, as the template orders over this line, until it closes its end.

    Nothing of a process is left when the next one starts, and none has executed anything in this one. `template`:
    its process id.
    """
    try:
        forks.inherit_orphans()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        forks.end_with(template, signal.SIGTERM)
        is_scoped = _scope(template)
        while (received := line.receive()) is not None and os.getppid() == template:
            order, descriptors = received
            if not isinstance(order, Start) or len(descriptors) != DESCRIPTORS:
                break
            _forget_signals()
            line.send(
                ProcessEnded(
                    order.number, Supervisor(order.watched, order.seconds, is_scoped).run(work, descriptors)
                )
            )
            if order.watched["scratch"]:
                remove(Path(order.watched["scratch"]))
            line.send(Free())
    finally:
        os._exit(0)


class Supervisor:
    """Watches one child, for at most so many seconds. `watched`: see `Start`.

    `is_scoped`: whether signals reach only what this process has started.
    """

    def __init__(self, watched: Mapping[str, Any], seconds: float, is_scoped: bool) -> None:
        self._limits, self._folders = Limits(**watched["limits"]), tuple(map(Path, watched["folders"]))
        self._scratch = watched["scratch"]
        self._deadline = time.monotonic() + seconds
        self._is_scoped = is_scoped
        self._child = 0
        self._status: int | None = None  # of the child, when it has ended

    def run(self, work: Work, descriptors: Sequence[int]) -> str:
        """Fork the child, which alone keeps the descriptors. How it has ended, when nothing of it is left."""
        supervisor = os.getpid()

        def started() -> NoReturn:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            work(*descriptors)

        try:
            if self._scratch:
                os.makedirs(self._scratch, mode=0o700)
            if problem := exceeded(self._limits, self._folders, None):
                return f"not started, as {problem}"
            self._child = forks.forked(started)
        except OSError as error:
            return f"not started: {error.strerror}"
        finally:
            for descriptor in descriptors:
                os.close(descriptor)
        problem = self._watch(supervisor)
        left = self._end_all()
        how = f"killed, as {problem}" if problem else _reason(self._status)
        return how + (STILL_THERE if left else "")

    def _watch(self, supervisor: int) -> str:
        """Wait until the child has ended or is to be killed; the limit that it exceeds, if it does.

        The limits are looked at every second, however many orphans end meanwhile.
        """
        next_look = time.monotonic() + WATCH_SECONDS
        while True:
            caught = signal.sigtimedwait(_SIGNALS, max(next_look - time.monotonic(), 0.0))
            self._reap()
            if self._status is not None or (caught is not None and caught.si_signo == signal.SIGTERM):
                return ""
            if time.monotonic() < next_look:
                continue
            if problem := exceeded(self._limits, self._folders, supervisor):
                return problem
            if time.monotonic() > self._deadline:
                return "its time was over"
            next_look = time.monotonic() + WATCH_SECONDS

    def _end_all(self) -> bool:
        """Kill everything that is left, until nothing is; whether something stays."""
        deadline = time.monotonic() + END_SECONDS
        while self._reap():
            if time.monotonic() > deadline:
                return True
            # Without the scope a signal to all would reach the whole machine. Then each child is killed; its own
            # children become children of this process, and are killed in the next round.
            for pid in (-1,) if self._is_scoped else forks.children(os.getpid()):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            signal.sigtimedwait({signal.SIGCHLD}, 0.01)
        return False

    def _reap(self) -> bool:
        """Take note of the children that have ended; whether others are left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self._child:
                self._status = status


def _scope(outside: int) -> bool:
    """Limit the signals of this process to what it starts; whether the kernel does so."""
    try:
        scope_signals(outside)
    except ConfinementError:
        return False
    return True


def _forget_signals() -> None:
    """Forget what was meant for the process before: an order to end it that came when it had ended."""
    while signal.sigtimedwait(_SIGNALS, 0) is not None:
        pass


def _reason(status: int | None) -> str:
    """How a process ended, from the status that `waitpid` gives; None: it was killed and is not gone yet."""
    code = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    name = next((member.name for member in signal.Signals if member == -code), "a real-time signal")
    return f"signal {-code} ({name})"
