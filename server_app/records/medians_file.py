"""The file of a run that says what is known of the medians that replace missing cells, a line for each column."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedstride.files import atomic, bounded_reading

NAME = "medians.txt"


def write(folder: Path, lines: Sequence[str]) -> None:
    """Write these lines; none: no file. Raises OSError."""
    if lines:
        atomic.write(folder / NAME, "\n".join([*lines, ""]).encode())


def read(folder: Path) -> list[str]:
    """The lines of a run's folder; none if there is no file. Raises OSError if there is something else."""
    path = folder / NAME
    if not path.exists():
        return []
    return bounded_reading.content(path, bounded_reading.SMALL).decode(errors="replace").splitlines()
