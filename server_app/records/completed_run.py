"""What the status in a run's folder says of its end.

A completed run that is resumed stays as it was until a round more is done.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedstride.files import atomic, bounded_reading

STATUS, CONFIG = "status.json", "config.yaml"


def kept(folder: Path, rounds: int) -> Mapping[str, bytes]:
    """Its status and its configuration; none of a run that is not completed with this many rounds."""
    try:
        texts = {name: bounded_reading.text(folder / name).encode() for name in (CONFIG, STATUS)}
        status = bounded_reading.from_json(texts[STATUS])
        return texts if (status["state"], status["rounds"]) == ("completed", rounds) else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def never_began(folder: Path) -> bool:
    """Whether it is the folder of a run that has ended and done no round."""
    try:
        status = bounded_reading.from_json(bounded_reading.text(folder / STATUS))
        return status["state"] not in ("running", "completed") and bool(status["rounds"] == 0)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def put_back(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write these files again. Raises OSError."""
    for name, content in files.items():
        atomic.write(folder / name, content)
