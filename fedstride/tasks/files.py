"""Files with data: packed ones, the contents of a folder, and what shows that a file has changed."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from collections.abc import Iterable
from io import BufferedReader
from pathlib import Path

from ..errors import DataError


def opened(path: Path) -> gzip.GzipFile | BufferedReader:
    """The file, opened to read its bytes; `NAME.gz` is unpacked while it is read."""
    return gzip.open(path, "rb") if path.suffix.lower() == ".gz" else open(path, "rb")


def files_in(folder: Path) -> list[Path]:
    """The files of a folder, sorted by name, without hidden ones. Raises DataError if it cannot be read."""
    try:
        return sorted(folder / entry.name for entry in os.scandir(folder) if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(f"{folder} cannot be read: {error.strerror}") from error


def signature(paths: Iterable[Path]) -> list[list[str | int]]:
    """Names, sizes and modification times, for the key of a cache entry: changes if a file changes."""
    files: list[list[str | int]] = []
    for path in paths:
        try:
            status = path.stat()
        except OSError as error:
            raise DataError(f"{path} cannot be read: {error.strerror}") from error
        files.append([str(path), status.st_size, status.st_mtime_ns])
    return files


def digest(files: Iterable[tuple[Path, int]], folder: Path) -> str:
    """Digest of names, classes, sizes and modification times of many files: changes if a file changes."""
    entries = []
    for file, label in files:
        try:
            status = file.stat()
        except OSError as error:
            raise DataError(f"{file} cannot be read: {error.strerror}") from error
        entries.append([os.path.relpath(file, folder), label, status.st_size, status.st_mtime_ns])
    return hashlib.sha256(json.dumps(entries).encode()).hexdigest()
