"""Whether processes have ended."""

from __future__ import annotations

import time
from pathlib import Path


def is_alive(pid: int) -> bool:
    """Whether this process exists and has not ended. One that has ended stays until its parent asks for it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def gone(*pids: int, seconds: float = 60.0) -> bool:
    """Wait until these processes have ended, at most so long; whether they have."""
    deadline = time.monotonic() + seconds
    while any(map(is_alive, pids)):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
