"""The processor cores of this machine that a process may use."""

from __future__ import annotations

import os


def cores() -> int:
    """Their number, at least 1."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
