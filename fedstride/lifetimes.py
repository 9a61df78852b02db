"""Ties the life of a process to that of its parent. Linux; elsewhere a process ends at its next request."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36  # linux/prctl.h


def end_with(parent: int) -> None:
    """Make the system kill this process when its parent ends. `parent`: its process id before the fork."""
    if _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != parent:  # it ended before the call
        os._exit(1)


def inherit_orphans() -> None:
    """Make this process the parent of processes whose parent, started from here, has ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _prctl(option: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    ctypes.CDLL(None).prctl(option, value)
    return True
