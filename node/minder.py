"""The minder of a message's process: starts it, watches what it uses, and ends it with all that it has started.

Each message has a minder of its own, a fork of the template that executes nothing of an app. Where Landlock can
limit signals, the minder can reach only what it has started, and ends that with one call; the app cannot reach the
minder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from confinement import ConfinementError, scope_signals
from fedstride import lifetimes

from .removal import remove
from .usage import Limits, children, exceeded

WATCH_SECONDS = 1.0
"""Between two looks at what the processes of a message use."""

END_SECONDS = 5.0
"""How long the end of killed processes is waited for."""

STILL_THERE = "; processes that it started are left, which the kernel does not end"

_SIGNALS = {signal.SIGCHLD, signal.SIGTERM}


def mind(
    work: Callable[[int], NoReturn], closed: set[int], report: int, template: int, watched: Mapping[str, Any]
) -> NoReturn:
    """Have a child `work`, report how it ended, remove its scratch folder, and end this process.

    `work`: gets the process id of the minder. `closed`: descriptors that are the child's alone. `report`: the pipe
    for the reason. `template`: its process id. `watched`: see `Start`.
    """
    try:
        lifetimes.inherit_orphans()
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        lifetimes.end_with(template, signal.SIGTERM)
        reason = Minder(Limits(**watched["limits"]), tuple(map(Path, watched["folders"]))).run(
            work, closed, template
        )
        os.write(report, reason.encode())
        os.close(report)
        if watched["scratch"]:
            remove(Path(watched["scratch"]))
    finally:
        os._exit(0)


class Minder:
    """Minds one child. `folders`: those that the limits of disk are for."""

    def __init__(self, limits: Limits, folders: tuple[Path, ...]) -> None:
        self._limits, self._folders = limits, folders
        self._child = 0
        self._status: int | None = None  # of the child, when it has ended

    def run(self, work: Callable[[int], NoReturn], closed: set[int], template: int) -> str:
        """Fork the child, and return how it ended when nothing of it is left."""
        if problem := exceeded(self._limits, self._folders, None):
            return f"not started, as {problem}"
        is_scoped = _scope(template)
        minder = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            work(minder)
        for each in closed:
            os.close(each)
        problem = self._watch(minder)
        left = self._end_all(is_scoped)
        how = f"killed, as {problem}" if problem else _reason(self._status)
        return how + (STILL_THERE if left else "")

    def _watch(self, minder: int) -> str:
        """Wait until the child has ended or is to be killed; the limit that it exceeds, if it does."""
        while True:
            found = signal.sigtimedwait(_SIGNALS, WATCH_SECONDS)
            self._reap()
            if self._status is not None or (found is not None and found.si_signo == signal.SIGTERM):
                return ""
            if found is None and (problem := exceeded(self._limits, self._folders, minder)):
                return problem

    def _end_all(self, is_scoped: bool) -> bool:
        """Kill everything that is left, until nothing is; whether something stays."""
        deadline = time.monotonic() + END_SECONDS
        while self._reap():
            if time.monotonic() > deadline:
                return True
            # Without the scope a signal to all would reach the whole machine. Then each child is killed; its own
            # children become children of this process, and are killed in the next round.
            for pid in (-1,) if is_scoped else children(os.getpid()):
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


def _reason(status: int | None) -> str:
    """How a process ended, from the status that `waitpid` gives; None: it was killed and is not gone yet."""
    code = -signal.SIGKILL if status is None else os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit code {code}"
    name = next((each.name for each in signal.Signals if each == -code), "a real-time signal")
    return f"signal {-code} ({name})"
