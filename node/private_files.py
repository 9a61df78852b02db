"""Files of a node that nobody else may write: made with mode 0600, read only if they belong to the node's user."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

from fedstride import private


def read(path: Path, most_bytes: int) -> bytes:
    """The content of a file.

    Raises OSError if it cannot be read or is a link, and PermissionError for a file of another user, one that
    others may write, and one that is larger than this.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    with os.fdopen(descriptor, "rb") as file:
        _check(os.fstat(descriptor), path)
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise PermissionError(None, f"it has more than {most_bytes} bytes", str(path))
    return content


def write(path: Path, content: bytes) -> None:
    """Replace a file by one with this content, which is on the disk when this returns. Raises OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(new, flags, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
    _sync(path.parent)


def append(path: Path, line: bytes) -> None:
    """Add a line to a file, which is on the disk when this returns. Raises OSError; then nothing is added."""
    is_new = not path.exists()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "ab", buffering=0) as file:
        about = os.fstat(file.fileno())
        _check(about, path)
        try:
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(about.st_size)
            raise
    if is_new:
        _sync(path.parent)


def _check(about: os.stat_result, path: Path) -> None:
    wrong = private.fault(path, about, private.CHANGE, owners=(0, os.geteuid()))
    if wrong or not stat.S_ISREG(about.st_mode):
        raise PermissionError(None, wrong or "is not a file", str(path))


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
