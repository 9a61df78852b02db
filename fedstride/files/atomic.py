"""Files that are written whole: whoever looks for one finds it complete, as it was before or as it is now."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
"""What a file system without hard links says, such as FAT."""


def write(path: Path, content: bytes, *, mode: int = 0o666, durable: bool = False) -> None:
    """Write a file in place of what has its name; a link with this name is replaced, not followed.

    The file is complete or unchanged, also if the process is killed: then `.NAME.NUMBER` may be left beside
    it, with the number of the thread. `mode`: of the new file, less the process's umask. `durable`: it is on the
    disk when this returns. Raises OSError.
    """
    with _under_another_name(path, content, mode, durable) as new:
        new.replace(path)
    if durable:
        sync(path.parent)


def write_json(path: Path, value: Any) -> None:
    """Write a value as JSON that people can read; see `write`."""
    write(path, (json.dumps(value, indent=2) + "\n").encode())


def create(path: Path, content: bytes, *, mode: int = 0o666, durable: bool = False) -> None:
    """Write a file that must not exist, as `write` does: it is complete or not there.

    Raises FileExistsError, also for a link with its name, and other OSErrors.
    """
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
    with _under_another_name(path, content, mode, durable) as new:
        try:
            os.link(new, path)  # which never replaces a file
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            put(path, content, mode, durable)
    if durable:
        sync(path.parent)


@contextlib.contextmanager
def _under_another_name(path: Path, content: bytes, mode: int, durable: bool) -> Iterator[Path]:
    new = path.with_name(f".{path.name}.{threading.get_native_id()}")
    new.unlink(missing_ok=True)
    try:
        put(new, content, mode, durable)
        yield new
    finally:
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)


def put(path: Path, content: bytes, mode: int = 0o666, durable: bool = False) -> None:
    """Write a new file in a folder that nobody looks into yet: it has its name before it is complete.

    What could not be written whole is removed: it would take space on a full disk. Raises OSError.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def sync(folder: Path) -> None:
    """Bring the names in a folder to the disk. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
