"""The file of a run that says what is known of the medians that replace missing cells, a line for each column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedstride.files import atomic

NAME = "medians.txt"


def write(folder: Path, lines: Sequence[str]) -> None:
    """Write these lines; none: no file. Raises OSError."""
    if lines:
        atomic.write(folder / NAME, "\n".join([*lines, ""]).encode())


def read(folder: Path) -> list[str]:
    """The lines of a run's folder; none if there is no file."""
    path = folder / NAME
    return path.read_text(errors="replace").splitlines() if path.exists() else []
