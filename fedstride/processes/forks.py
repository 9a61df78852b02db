"""Forks, and what ties a process's life to its parent's. Linux; elsewhere it ends at its next request."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h

_END_SECONDS = 10.0
"""How long the end of killed processes is waited for."""

_WAITED_FOR = {signal.SIGCHLD, signal.SIGTERM}


def end_with(parent: int, what: signal.Signals = signal.SIGKILL) -> None:
    """Make the system send this signal to this process when its parent ends, by default one that kills it.

    `parent`: its process id before the fork. If it has ended already, this process ends at once.
    """
    if _prctl(_PR_SET_PDEATHSIG, what) and os.getppid() != parent:
        os._exit(1)


def forked(body: Callable[[], int | None], end: signal.Signals | None = signal.SIGKILL) -> int:
    """Fork this process; the fork calls `body` and ends with its result as exit code. The process id of the fork.

    It does nothing of what this process does at its end. An error is printed; the exit code is then 1. `end`: the
    signal that it gets when this process ends; None: none. Raises OSError if there can be no other process.
    """
    _flush()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            if end is not None:
                end_with(parent, end)
            code = body() or 0
        except BaseException:
            traceback.print_exc()
        finally:
            _flush()
            os._exit(code)
    return pid


def inherit_orphans() -> None:
    """Make this process the parent of processes whose parent, started from here, has ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def children(pid: int) -> list[int]:
    """The children of a process, as far as they can be seen: /proc may hide them."""
    pids: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            pids += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    except (OSError, ValueError):
        return pids
    return pids


def kept(parent: int, work: Callable[[], int]) -> int:
    """Do this work in a fork of this process, whose parent is `parent`; the exit code of the work.

    This process only waits. When the work has ended, on SIGTERM, and when the parent has ended, it kills whatever
    the work has started and is left, and returns when nothing is. So this process must have no other children.
    """
    inherit_orphans()
    signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    end_with(parent, signal.SIGTERM)

    def started() -> int:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _WAITED_FOR)
        return work()

    child = forked(started)
    code = None
    while code is None and signal.sigwait(_WAITED_FOR) == signal.SIGCHLD:
        code = _reap(child)
    _kill_all([child] if code is None else [])
    return 1 if code is None or code < 0 else code


def _reap(child: int) -> int | None:
    """Take note of the children that have ended; the exit code of this one if it has."""
    code = None
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                code = os.waitstatus_to_exitcode(ended[1])
    return code


def _kill_all(known: list[int]) -> None:
    """Kill all children until there are none: those of a killed one become children of this process.

    `known`: children that are there, for systems that do not list them.
    """
    deadline = time.monotonic() + _END_SECONDS
    while time.monotonic() < deadline:
        for pid in {*children(os.getpid()), *known}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        known = []
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.01)


def _flush() -> None:
    """What is written but not flushed would be written by both processes."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    ctypes.CDLL(None).prctl(option, value)
    return True
