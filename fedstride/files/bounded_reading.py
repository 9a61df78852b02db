"""Reads files and texts that anyone may have written: bounded, and without waiting for anybody.

A run's folder may come from somebody else, a SuperLink's answers always do. A pipe in place of a file would block
its reader for ever, a file can be larger than the memory, and a few bytes of JSON can be nested so deeply, or have
so long a number, that a parser fails in its own way. Here each of these is an OSError or a ValueError.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from pathlib import Path
from typing import Any

SMALL = 2**22
"""Bytes of a file that describes something: a status, a configuration, a task."""

DEEPEST = 40
"""Levels of lists and mappings in JSON."""

LARGEST = 2**1000
"""Absolute value of whole numbers; of much larger ones no float can be made."""

FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def content(path: Path, most: int | None = None) -> bytes:
    """The bytes of a file. Raises OSError if it cannot be read, is no file, or has more than `most` bytes.

    Without `most`, a file has at most half as many bytes as this machine has memory.
    """
    descriptor = os.open(path, FLAGS)
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(descriptor)
        if stat.S_ISDIR(about.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(about.st_mode):
            raise OSError(errno.EINVAL, "it is not a file", str(path))
        limit = _half_of_the_memory() if most is None else most
        if about.st_size > limit:
            raise OSError(errno.EFBIG, f"it has {about.st_size} bytes, at most {limit} are read", str(path))
        return file.read(about.st_size)


def text(path: Path, most: int = SMALL) -> str:
    """The text of a file in UTF-8. Raises OSError as `content` does, and ValueError for other bytes."""
    try:
        return content(path, most).decode()
    except UnicodeDecodeError:
        raise ValueError("it is not text") from None


def from_json(written: str | bytes) -> Any:
    """The value of this JSON, of which every number is finite. Raises ValueError for anything else."""
    try:
        value = json.loads(written)
    except RecursionError:
        raise ValueError(f"it is nested more than {DEEPEST} times") from None
    except ValueError as error:
        raise ValueError(f"it is not JSON: {str(error).splitlines()[0]}") from None
    _check(value, DEEPEST)
    return value


def _check(value: Any, levels: int) -> None:
    if isinstance(value, (dict, list)):
        if not levels:
            raise ValueError(f"it is nested more than {DEEPEST} times")
        for item in value.values() if isinstance(value, dict) else value:
            _check(item, levels - 1)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError("it has a number that is not finite")
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise ValueError("it has a whole number that is too large")


def _half_of_the_memory() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
