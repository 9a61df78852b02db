"""Files that are written whole: whoever looks for one finds it complete, as it was before or as it is now."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any


def write(path: Path, content: bytes, *, mode: int = 0o666, durable: bool = False) -> None:
    """Write a file in place of what has its name; a link with this name is replaced, not followed.

    The file is complete or unchanged, also if the process is killed: then `.NAME.PID` may be left beside it.
    `mode`: of the new file, less the process's umask. `durable`: it is on the disk when this returns.
    Raises OSError.
    """
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    try:
        create(new, content, mode=mode, durable=durable)
        new.replace(path)
    finally:  # a part of a file would take space on a full disk
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
    if durable:
        sync(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON that people can read; see `write`."""
    write(path, (json.dumps(value, indent=2) + "\n").encode())


def create(path: Path, content: bytes, *, mode: int = 0o666, durable: bool = False) -> None:
    """Write a file that must not exist. Raises FileExistsError, also for a link with its name, and other OSErrors.

    It has its name before it is complete: use it for a file that nobody looks for yet.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        file.write(content)
        if durable:
            file.flush()
            os.fsync(file.fileno())


def sync(folder: Path) -> None:
    """Bring the names in a folder to the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
