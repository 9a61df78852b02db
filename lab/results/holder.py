"""Finds and interrupts the process of a run on this machine: the one that holds the lock of its folder."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from fedstride.errors import ConfigError, RunError
from server_app.folder import is_locked

LOCKS = Path("/proc/locks")


def holder(folder: Path) -> int | None:
    """The id of the process that writes to the run's folder; None if there is none, or if it is not visible."""
    try:
        inode = (folder / ".lock").stat().st_ino
        text = LOCKS.read_text()
    except OSError:
        return None
    for line in text.splitlines():
        fields = line.split()  # 1: FLOCK ADVISORY WRITE 4711 00:2d:123456 0 EOF
        if fields[1:2] == ["FLOCK"] and fields[5].rpartition(":")[2] == str(inode) and int(fields[4]) > 0:
            return int(fields[4])
    return None


def interrupt(folder: Path) -> int:
    """Send SIGINT to the run's process, as Ctrl-C does, or SIGTERM if it ignores SIGINT; its id.

    Raises ConfigError if no process writes to the folder, RunError if it cannot be reached from here.
    """
    if not is_locked(folder):
        raise ConfigError(f"{folder} is not running: no process writes to it")
    process = holder(folder)
    if process is None:
        raise RunError(f"the process that writes to {folder} is not visible here; stop it in its own container")
    try:
        os.kill(process, signal.SIGTERM if _ignores(process, signal.SIGINT) else signal.SIGINT)
    except OSError as error:
        raise RunError(f"process {process} of {folder} cannot be stopped ({error.strerror})") from error
    return process


def _ignores(process: int, number: signal.Signals) -> bool:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return False
    ignored = next((int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:")), 0)
    return bool(ignored >> (number - 1) & 1)
