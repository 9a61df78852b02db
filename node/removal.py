"""Removes folders in which an app has written: whatever it has left there, links are not followed.

Folders that are nested deeply, that nobody may enter, or that hold millions of files cost time only.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Collection
from pathlib import Path

SECONDS = 60.0
"""How long one removal may take. What is left is removed when the node starts again."""

_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def remove(folder: Path, seconds: float = SECONDS) -> bool:
    """Remove a folder with all that is in it; whether nothing is left of it."""
    deadline = time.monotonic() + seconds
    try:
        above = os.open(folder.parent, _OPEN)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        return _emptied(above, folder.name, deadline) and _gone(above, folder.name)
    finally:
        os.close(above)


def remove_named(folder: Path, names: Collection[str], seconds: float = SECONDS) -> None:
    """Remove what has these names in a folder."""
    deadline = time.monotonic() + seconds
    for name in names:
        path = folder / name
        with contextlib.suppress(OSError):
            if path.is_symlink() or not path.is_dir():
                path.unlink()
            else:
                remove(path, max(deadline - time.monotonic(), 0.0))


def left_beside(folder: Path) -> list[str]:
    """The names of what is beside a folder."""
    try:
        return sorted(set(os.listdir(folder.parent)) - {folder.name})
    except OSError:
        return []


def _emptied(above: int, name: str, deadline: float) -> bool:
    """Empty a folder. Its folders are moved up into it before they are emptied, so none is deep."""
    top = opened(above, name)
    if top is None:
        return False
    number, prefix = 0, f".{os.urandom(8).hex()}-"  # a name that the app cannot have taken
    try:
        waiting = _cleared(top, deadline)
        while waiting:
            folder = waiting.pop()
            inner = opened(top, folder)
            if inner is None:
                return False
            try:
                for entry in _cleared(inner, deadline):
                    number += 1
                    moved = f"{prefix}{number}"
                    os.rename(entry, moved, src_dir_fd=inner, dst_dir_fd=top)
                    waiting.append(moved)
            finally:
                os.close(inner)
            os.rmdir(folder, dir_fd=top)
    except OSError:
        return False
    finally:
        os.close(top)
    return True


def _cleared(folder: int, deadline: float) -> list[str]:
    """Remove the files of an open folder; the names of its folders. Raises OSError, also when the time is over."""
    folders = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if time.monotonic() > deadline:
                raise TimeoutError
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                os.unlink(entry.name, dir_fd=folder)
    return folders


def opened(above: int, name: str) -> int | None:
    """The folder of this name, made accessible; None if it is not a folder."""
    try:
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
        try:
            if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
                return None
            os.chmod(f"/proc/self/fd/{descriptor}", 0o700)
            return os.open(".", _OPEN, dir_fd=descriptor)
        finally:
            os.close(descriptor)
    except OSError:
        return None


def _gone(above: int, name: str) -> bool:
    try:
        os.rmdir(name, dir_fd=above)
    except OSError:
        return False
    return True
