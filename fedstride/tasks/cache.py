"""Prepared arrays on disk: written once, mapped into memory by every process that reads them.

Knows folders, keys and atomic writes; does not know what the arrays mean. A key holds everything that
went into an entry, so an entry never has to be refreshed.
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

FORMAT = 1  # raise it when the meaning of stored arrays changes


def cache_dir() -> Path:
    """`FEDSTRIDE_CACHE`, or `fedstride` below the user's cache folder."""
    if chosen := os.environ.get("FEDSTRIDE_CACHE"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "fedstride"


def cached(
    kind: str, key: Mapping[str, Any], make: Callable[[], Mapping[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    """The arrays of an entry, memory-mapped read-only; made first where they are not there.

    `key` must be JSON. Two processes that make one entry at a time both succeed: each writes a folder
    of its own, and the first rename wins. Raises DataError if the folder cannot be written.
    """
    text = json.dumps({"format": FORMAT, "kind": kind, **key}, sort_keys=True)
    folder = cache_dir() / f"{kind}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"
    if folder.is_dir() and not any(folder.glob("*.npy")):
        shutil.rmtree(folder, ignore_errors=True)  # somebody swept the files away
    if not folder.is_dir():
        _write(folder, text, make())
    return {path.stem: np.load(path, mmap_mode="r", allow_pickle=False) for path in sorted(folder.glob("*.npy"))}


def _write(folder: Path, key: str, arrays: Mapping[str, np.ndarray]) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise DataError(
            f"the cache folder {folder.parent} cannot be written ({error.strerror}); "
            "set FEDSTRIDE_CACHE to one that can"
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
                "or set FEDSTRIDE_CACHE to another folder"
            ) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
