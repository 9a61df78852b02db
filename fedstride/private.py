"""Whether a file is its user's alone, as keys, tokens, databases and the files that rule a node must be."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path

from .errors import ConfigError

USE, CHANGE = 0o077, 0o022
"""The bits of a mode that let others use a file in any way, and change it."""

MOST_BYTES = 1 << 20  # of a file that is read


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
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link: name the file itself") from error
        raise
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is not a file")
        return file.read(MOST_BYTES), fault(path, about)


def write(path: Path, content: bytes) -> None:
    """Write a file with mode 0600, in place of what has its name. No link is followed. Raises OSError."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.unlink(missing_ok=True)
    try:
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


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
