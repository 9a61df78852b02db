"""Output files of a command (-o): protects other files from being overwritten, and reports write errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from fedstride.errors import ConfigError, RunError

STANDARD_OUTPUT = Path("-")
"""As the name of a file: it is printed, and all else that the command says goes to standard error."""


def refuse_standard_output(path: Path | None, option: str, what: str) -> None:
    """Raise ConfigError if a command should print what is no text."""
    if path == STANDARD_OUTPUT:
        raise ConfigError(
            f"{option} - is not possible: {what} is not printed; name a file or folder, as in ./NAME"
        )


def check_replaceable(path: Path, mark: str, kind: str, within: int | None = None) -> None:
    """Raises ConfigError for a folder, an unreadable file, and one without `mark`, which our files contain.

    `within`: search the mark in this number of bytes from the beginning; in the whole file if None.
    """
    if path.is_dir():
        raise ConfigError(f"{path} is a folder: name a file in it")
    try:
        foreign = path.exists() and mark.encode() not in path.read_bytes()[:within]
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}): name another file with -o") from error
    if foreign:
        raise ConfigError(
            f"{path} exists and is not a {kind} by fedstride: it is not overwritten; name another file"
        )


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Context for writing a file: creates its folder; raises RunError if the file cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise RunError(f"{path} cannot be written ({error.strerror}): name another file with -o") from error
