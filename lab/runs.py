"""Reading run folders. Knows their files; does not know how they came about."""

from __future__ import annotations

from pathlib import Path

from server_app.records import read_lines
from server_app.rounds import Row


def read_rows(folder: Path) -> list[Row]:
    """The metrics of the rounds that are over, round 0 first; none where there is no run yet."""
    return read_lines(folder / "metrics.jsonl")
