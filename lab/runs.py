"""Reading run folders. Knows their files; does not know how they came about."""

from __future__ import annotations

import json
from pathlib import Path

from server_app.rounds import Row


def read_rows(folder: Path) -> list[Row]:
    """The metrics of the rounds that are over, round 0 first; none where there is no run yet.

    A run may be writing: the piece after the last line break is not yet a line.
    """
    path = folder / "metrics.jsonl"
    if not path.is_file():
        return []
    return [json.loads(text) for text in path.read_text(encoding="utf-8").split("\n")[:-1]]
