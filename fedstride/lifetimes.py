"""Ties the life of a process to that of its parent. Linux; elsewhere a process ends at its next request."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def end_with(parent: int, what: signal.Signals = signal.SIGKILL) -> None:
    """Make the system send this signal to this process when its parent ends, by default one that kills it.

    `parent`: its process id before the fork. If it has ended already, this process ends at once.
    """
    if _prctl(_PR_SET_PDEATHSIG, what) and os.getppid() != parent:
        os._exit(1)


def inherit_orphans() -> None:
    """Make this process the parent of processes whose parent, started from here, has ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    ctypes.CDLL(None).prctl(option, value)
    return True
