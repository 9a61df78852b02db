"""Cache of prepared arrays on disk: written once, then memory-mapped by every process that reads them.

The key of an entry contains everything on which its arrays depend, so an entry never becomes outdated.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError

FORMAT = 1  # increase it when the meaning of stored arrays changes


def cache_dir() -> Path:
    """The cache folder: FEDSTRIDE_CACHE, else `fedstride` below XDG_CACHE_HOME or ~/.cache."""
    if chosen := os.environ.get("FEDSTRIDE_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fedstride"


def cached(
    kind: str, key: Mapping[str, Any], make: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The arrays of an entry, memory-mapped and read-only. Calls `make` and writes the entry if it does not exist.

    `key` must be serialisable as JSON. Two processes can write the same entry at the same time: each writes a
    temporary folder, and the first rename wins. Raises DataError if the entry cannot be written.
    """
    text = _text(kind, key)
    folder = _folder(kind, text)
    if folder.is_dir() and not any(folder.glob("*.npy")):
        shutil.rmtree(folder, ignore_errors=True)  # a cleaning tool deleted the files but not the folder
    if not folder.is_dir():
        _write(folder, text, make())
    return {path.stem: np.load(path, mmap_mode="r", allow_pickle=False) for path in sorted(folder.glob("*.npy"))}


def discard(kind: str, key: Mapping[str, Any]) -> None:
    """Delete an entry, for example a damaged one. Errors are ignored."""
    shutil.rmtree(_folder(kind, _text(kind, key)), ignore_errors=True)


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
        for name, array in arrays.items():
            np.save(temporary / f"{name}.npy", array, allow_pickle=False)
        (temporary / "key.json").write_text(key)
        temporary.rename(folder)
    except OSError as error:
        if not folder.is_dir():
            raise DataError(
                f"the cache entry {folder} cannot be written ({error.strerror}); free disk space, "
                "or set FEDSTRIDE_CACHE to a folder on another disk"
            ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
