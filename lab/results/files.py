"""Files that a user asks for with -o: what is never replaced, and what is said where one cannot be written.

Knows paths and marks; does not know what is in a file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from fedstride.errors import ConfigError, RunError


def check_replaceable(path: Path, mark: str, kind: str, within: int | None = None) -> None:
    """Raises ConfigError for a folder, or a file that is there without the mark that ours of this kind bear.

    `within`: so many bytes from the beginning; anywhere if None.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name a file in it")
    if path.exists() and mark.encode() not in path.read_bytes()[:within]:
        raise ConfigError(f"{path} exists and is no {kind} of ours: it is not overwritten; name another file")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """While a file is written; its folder is made. Raises RunError where that cannot be done."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}): name another file with -o") from error
