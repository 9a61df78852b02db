"""Checks that files of the SuperLink are its user's alone, before anything is written to them."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

from fedstride.errors import ConfigError

BESIDE = ("", "-wal", "-shm", "-journal")
"""What SQLite adds to a database's name."""


def check_file(path: Path, what: str) -> None:
    """Raises ConfigError if the file is there, and is a link, of another user, or open to others."""
    _check(path, what, stat.S_ISREG, "a file", 0o600)


def check_folder(path: Path, what: str, others: int = 0o077) -> None:
    """As `check_file`, for a folder. `others`: the bits of its mode that it must not have."""
    _check(path, what, stat.S_ISDIR, "a folder", 0o700, others)


def check_database(path: Path) -> None:
    """Raises ConfigError if another user could read or change the database, or what SQLite writes beside it."""
    for ending in BESIDE:
        check_file(path.with_name(path.name + ending), "the database")


def _check(
    path: Path, what: str, is_kind: Callable[[int], bool], kind: str, mode: int, others: int = 0o077
) -> None:
    try:
        about = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{what} {path} cannot be looked at ({error.strerror})") from error
    found = stat.S_IMODE(about.st_mode)
    if not is_kind(about.st_mode):
        raise ConfigError(f"{what} {path} is not {kind} of its own, but a link or another thing: name {kind}")
    if about.st_uid != os.geteuid():
        raise ConfigError(
            f"{what} {path} belongs to user {about.st_uid}, not to this one: chown {os.geteuid()} {path}"
        )
    if found & others:
        raise ConfigError(f"{what} {path} has mode {found:04o}, so others can use it: chmod {mode:o} {path}")
