"""What the status in a run's folder says of its end.

A completed run that is resumed stays as it was until a round more is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from fedstride.files import atomic, bounded_reading

from ..file_names import CONFIG, STATUS


class _End(NamedTuple):
    """How the status says that a run stands, and the file's text."""

    state: str
    rounds: int
    text: str


def kept(folder: Path, rounds: int) -> Mapping[str, bytes]:
    """Its status and its configuration; none of a run that is not completed with this many rounds."""
    end = _end(folder)
    if end is None or (end.state, end.rounds) != ("completed", rounds):
        return {}
    try:
        return {CONFIG: bounded_reading.text(folder / CONFIG).encode(), STATUS: end.text.encode()}
    except (OSError, ValueError):
        return {}


def never_began(folder: Path) -> bool:
    """Whether it is the folder of a run that has ended and done no round."""
    end = _end(folder)
    return end is not None and end.state not in ("running", "completed") and end.rounds == 0


def put_back(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write these files again. Raises OSError."""
    for name, content in files.items():
        atomic.write(folder / name, content)


def _end(folder: Path) -> _End | None:
    """None if the status cannot be read, or has another form."""
    try:
        text = bounded_reading.text(folder / STATUS)
        status = bounded_reading.from_json(text)
        return _End(status["state"], status["rounds"], text)
    except (OSError, ValueError, KeyError, TypeError):
        return None
