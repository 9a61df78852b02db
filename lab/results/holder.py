"""Finds and interrupts the process of a run on this machine: the one that holds the lock of its folder.

`/proc/locks` names the file of a lock by its inode, which other file systems have, too, and the process by its
number, which another process may have a moment later. So a process counts only if it has this very file open, and
the signal goes to a descriptor of the process that was checked. A lock that is a link may be another program's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path

from fedstride.errors import ConfigError, RunError
from server_app.folder import LOCK, is_locked

LOCKS = Path("/proc/locks")


@contextlib.contextmanager
def holder(folder: Path) -> Iterator[tuple[int, int] | None]:
    """The process that writes to the run's folder, as a descriptor and its number; None if none is visible."""
    for process in _candidates(folder):
        try:
            descriptor = os.pidfd_open(process)
        except OSError:
            continue
        try:
            if _has_open(process, folder / LOCK):  # checked after it was opened: the number is not used again
                yield descriptor, process
                return
        finally:
            os.close(descriptor)
    yield None


def interrupt(folder: Path) -> int:
    """Send SIGINT to the run's process, as Ctrl-C does, or SIGTERM if it ignores SIGINT; its id.

    Raises ConfigError if no process writes to the folder, RunError if it cannot be reached from here.
    """
    if not is_locked(folder):
        raise ConfigError(f"{folder} is not running: no process writes to it")
    with holder(folder) as found:
        if found is None:
            raise RunError(
                f"the process that writes to {folder} is not visible here; stop it as its user, and in its own "
                "container"
            )
        descriptor, process = found
        number = signal.SIGTERM if _ignores(process, signal.SIGINT) else signal.SIGINT
        try:
            signal.pidfd_send_signal(descriptor, number)
        except OSError as error:
            raise RunError(f"process {process} of {folder} cannot be stopped ({error.strerror})") from error
    return process


def _candidates(folder: Path) -> list[int]:
    """The processes that hold a lock of a file with this inode, on any file system."""
    try:
        about = (folder / LOCK).lstat()
        text = LOCKS.read_text()
    except OSError:
        return []
    if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:
        return []
    found = []
    for line in text.splitlines():
        fields = line.split()  # 1: FLOCK ADVISORY WRITE 4711 00:2d:123456 0 EOF
        if fields[1:2] == ["FLOCK"] and fields[5].rpartition(":")[2] == str(about.st_ino) and int(fields[4]) > 0:
            found.append(int(fields[4]))
    return found


def _has_open(process: int, path: Path) -> bool:
    """Whether the process has this file open, which is its device and its inode."""
    try:
        wanted = path.stat()
        opened = list(Path(f"/proc/{process}/fd").iterdir())
    except OSError:
        return False
    for each in opened:
        with contextlib.suppress(OSError):
            if os.path.samestat(each.stat(), wanted):
                return True
    return False


def _ignores(process: int, number: signal.Signals) -> bool:
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return False
    ignored = next((int(line.split()[1], 16) for line in lines if line.startswith("SigIgn:")), 0)
    return bool(ignored >> (number - 1) & 1)
