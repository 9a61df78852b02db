"""Processes of a test: ended in the middle of their work, and whether they have ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any


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


def killed_at(process: subprocess.Popen[Any], folder: Path, seconds: float = 120.0) -> None:
    """Kill a process that leads its group, with the whole group, as soon as it has made this folder."""
    deadline = time.monotonic() + seconds
    while not folder.is_dir():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
