"""Files of one user alone, such as keys, tokens, databases and what rules a node: are they, and what is in them.

`read` is for files that a person gives; `kept`, `keep` and `append` are for those that a program makes for itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path

from ..errors import ConfigError
from . import atomic

USE, CHANGE = 0o077, 0o022
"""The bits of a mode that let others use a file in any way, and change it."""

MOST_BYTES = 1 << 20  # of a file that is read

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def fault(path: Path, about: os.stat_result, others: int = USE, owners: Collection[int] | None = None) -> str:
    """What is wrong with this file or folder, and what to do; empty if nothing.

    `others`: the bits of its mode that it must not have. `owners`: whose it may be; None: this process's user's.
    """
    mode = stat.S_IMODE(about.st_mode)
    if about.st_uid not in (owners if owners is not None else (os.geteuid(),)):
        return f"belongs to user {about.st_uid}, not to this one: chown {os.geteuid()} {path}"
    if mode & others:
        best = 0o700 if stat.S_ISDIR(about.st_mode) else 0o600
        return f"has mode {mode:04o}, so others can use it: chmod {best:o} {path}"
    return ""


def check_file(path: Path, what: str) -> None:
    """Raises ConfigError if the file is there, and is a link, of another user, or open to others."""
    _check(path, what, USE, stat.S_IFREG)


def check_folder(path: Path, what: str, others: int = USE) -> None:
    """As `check_file`, for a folder. `others`: the bits of its mode that it must not have."""
    _check(path, what, others, stat.S_IFDIR)


def read(path: Path) -> tuple[bytes, str]:
    """The content of a file, at most `MOST_BYTES`, and its `fault`. Raises OSError, also for a link or a pipe."""
    try:
        descriptor = os.open(path, _READ)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link: name the file itself") from error
        raise
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        return file.read(MOST_BYTES), fault(path, about)


def kept(path: Path, most_bytes: int) -> bytes:
    """The content of a file that only this process's user and root can change.

    Raises OSError if it cannot be read or is a link, and PermissionError for a file of another user, one that
    others may write, and one that is larger than this.
    """
    descriptor = os.open(path, _READ)
    with os.fdopen(descriptor, "rb") as file:
        _check_kept(os.fstat(descriptor), path)
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise PermissionError(None, f"it has more than {most_bytes} bytes", str(path))
    return content


def keep(path: Path, content: bytes) -> None:
    """Replace a file, with mode 0600, by one with this content, which is on the disk when this returns.

    Raises OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    atomic.write(path, content, mode=0o600, durable=True)


def append(path: Path, line: bytes) -> None:
    """Add a line to a kept file; it is on the disk when this returns. Raises OSError; then nothing is added."""
    is_new = not path.exists()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with os.fdopen(os.open(path, _APPEND, 0o600), "ab", buffering=0) as file:
        about = os.fstat(file.fileno())
        _check_kept(about, path)
        try:
            if file.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                file.truncate(about.st_size)
            raise
    if is_new:
        atomic.sync(path.parent)


def _check_kept(about: os.stat_result, path: Path) -> None:
    wrong = fault(path, about, CHANGE, owners=(0, os.geteuid()))
    if wrong or not stat.S_ISREG(about.st_mode):
        raise PermissionError(None, wrong or "is not a file", str(path))


def _check(path: Path, what: str, others: int, kind: int) -> None:
    try:
        about = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{what} {path} cannot be looked at ({error.strerror})") from error
    if stat.S_IFMT(about.st_mode) != kind:
        name = "a file" if kind == stat.S_IFREG else "a folder"
        raise ConfigError(f"{what} {path} is not {name} of its own, but a link or another thing: name {name}")
    if wrong := fault(path, about, others):
        raise ConfigError(f"{what} {path} {wrong}")
