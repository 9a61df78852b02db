"""Finds and interrupts the process of a run on this machine: the one that holds the lock of its folder.

The system names the process by its number, which another one may have a moment later. So it is asked again when
there is a descriptor of the process, to which the signal then goes.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

from fedstride.errors import ConfigError, RunError
from server_app.records.run_folder import is_locked, owner_of_lock


@contextlib.contextmanager
def holder(folder: Path) -> Iterator[tuple[int, int] | None]:
    """The process that writes to the run's folder, as a descriptor and its number; None if none is visible."""
    process = owner_of_lock(folder)
    try:
        descriptor = None if process is None else os.pidfd_open(process)
    except OSError:
        descriptor = None
    if process is None or descriptor is None:
        yield None
        return
    try:
        yield (descriptor, process) if owner_of_lock(folder) == process else None
    finally:
        os.close(descriptor)


def interrupt(folder: Path) -> int:
    """Send SIGINT to the run's process, as Ctrl-C does, or SIGTERM if it ignores SIGINT; its id.

    Raises ConfigError if no process writes to the folder, RunError if it cannot be reached from here.
    """
    if not is_locked(folder):
        raise ConfigError(f"{folder} is not running: no process writes to it")
    with holder(folder) as writer:
        if writer is None:
            raise RunError(
                f"the process that writes to {folder} is not visible here; stop it as its user, and in its own "
                "container"
            )
        descriptor, process = writer
        number = signal.SIGTERM if _ignores(process, signal.SIGINT) else signal.SIGINT
        try:
            signal.pidfd_send_signal(descriptor, number)
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
