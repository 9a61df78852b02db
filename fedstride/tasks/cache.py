"""Cache of prepared arrays on disk: written once, then memory-mapped by every process that reads them.

The key of an entry contains everything on which its arrays depend, so an entry never becomes outdated.
What was written is remembered beside it, so a file that was cut, changed or deleted is noticed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..errors import DataError
from ..files import user_folders

FORMAT = 1  # increase it when the meaning of stored arrays changes
FILES = "files.json"
"""Of an entry: the names of its arrays, and what is known of their files. It is written last."""

_log = logging.getLogger("flwr")


def cache_dir() -> Path:
    """The cache folder: FEDSTRIDE_CACHE, else `fedstride` below XDG_CACHE_HOME or ~/.cache.

    Raises ConfigError if none of these is set, and the home folder is not known.
    """
    chosen, base = os.environ.get("FEDSTRIDE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return user_folders.expanded(chosen or f"{base or '~/.cache'}/fedstride")


def cached(
    kind: str, key: Mapping[str, Any], make: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The arrays of an entry, memory-mapped and read-only. Calls `make` and writes the entry if there is none.

    `key` must be serialisable as JSON. An entry that is damaged or incomplete is made again, with a line in the
    log. Two processes can write the same entry at the same time: each writes a temporary folder, and the first
    rename wins. Raises DataError if the entry cannot be read or written, for example because of its permissions.
    """
    text = _text(kind, key)
    folder = _folder(kind, text)
    if (arrays := _read(folder)) is not None:
        return arrays
    made = make()
    if os.path.lexists(folder):
        _log.warning("the cache entry %s was damaged or incomplete, and is made again", folder)
    _write(folder, text, made)
    return _read(folder) or {name: _read_only(array) for name, array in made.items()}


def _read(folder: Path) -> dict[str, np.ndarray] | None:
    """The arrays of an entry; None if it does not exist, or is not as it was written."""
    try:
        files = json.loads((folder / FILES).read_bytes())
        return {name: _array(folder / f"{name}.npy", _File(*about)) for name, about in sorted(files.items())}
    except PermissionError as error:
        raise DataError(
            f"the cache entry {folder} cannot be read ({error.strerror}): set FEDSTRIDE_CACHE to a folder of this "
            "user, or let the owner of this one permit it"
        ) from error
    except (OSError, ValueError, EOFError, TypeError, AttributeError):
        return None


class _File(NamedTuple):
    """What is known of a file since it was written."""

    size: int
    changed: int  # nanoseconds, as in st_mtime_ns
    digest: str


def _array(path: Path, known: _File) -> np.ndarray:
    """The array of a file. Raises ValueError if the file has another content.

    Its content is read only if its time is another one, as in a copy: a file may have gigabytes.
    """
    about = path.stat()
    if about.st_size != known.size or (about.st_mtime_ns != known.changed and _digest(path) != known.digest):
        raise ValueError(f"{path} is not as it was written")
    array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_only(array: np.ndarray) -> np.ndarray:
    view = array.view()
    view.flags.writeable = False
    return view


def discard(kind: str, key: Mapping[str, Any]) -> None:
    """Delete an entry, for example a damaged one. Errors are ignored."""
    with contextlib.suppress(OSError):
        _remove(_folder(kind, _text(kind, key)))


def _text(kind: str, key: Mapping[str, Any]) -> str:
    return json.dumps({"format": FORMAT, "kind": kind, **key}, sort_keys=True)


def _folder(kind: str, text: str) -> Path:
    return cache_dir() / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def _write(folder: Path, key: str, arrays: Mapping[str, np.ndarray]) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise DataError(
            f"the cache folder {folder.parent} is not writable ({error.strerror}); "
            "set FEDSTRIDE_CACHE to a writable folder"
        ) from error
    try:
        files = {name: _saved(temporary / f"{name}.npy", array) for name, array in arrays.items()}
        (temporary / "key.json").write_text(key)
        (temporary / FILES).write_text(json.dumps(files))
        _put(temporary, folder)
    except OSError as error:
        raise DataError(
            f"the cache entry {folder} cannot be written ({error.strerror or error}); free disk space, "
            "or set FEDSTRIDE_CACHE to a folder on another disk"
        ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _saved(path: Path, array: np.ndarray) -> _File:
    np.save(path, array, allow_pickle=False)
    about = path.stat()
    return _File(about.st_size, about.st_mtime_ns, _digest(path))


def _put(temporary: Path, folder: Path) -> None:
    """Give the entry its name, unless another process has written it meanwhile."""
    try:
        temporary.rename(folder)
    except OSError:
        if _read(folder) is not None:
            return
        _remove(folder)  # a damaged one
        temporary.rename(folder)


def _remove(folder: Path) -> None:
    if folder.is_dir() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)
    else:
        folder.unlink(missing_ok=True)
