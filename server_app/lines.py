"""A file of lines that only grows, on a disk that may be full for a while.

Knows bytes and offsets; does not know what a line means.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Lines:
    """Appends lines; those that could not be written wait and are written with the next ones.

    A line that was cut by a full disk is taken back first, so a reader never sees half of one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._good = path.stat().st_size if path.exists() else 0
        self._waiting: list[str] = []

    def append(self, lines: Iterable[str]) -> None:
        """Write these lines and all that wait. Raises OSError where they have to wait on."""
        self._waiting += lines
        if not self._waiting:
            return
        content = "".join(line + "\n" for line in self._waiting).encode()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            os.ftruncate(descriptor, self._good)
            os.lseek(descriptor, self._good, os.SEEK_SET)
            written = 0
            while written < len(content):
                written += os.write(descriptor, content[written:])
        finally:
            os.close(descriptor)
        self._good += len(content)
        self._waiting.clear()

    def sync(self) -> None:
        """Force what is written to the disk."""
        if self.path.exists():
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a .jsonl file; none where there is none.

    A run may be writing, or was killed while it wrote: what follows the last line break is no line yet.
    """
    if not path.is_file():
        return []
    return [json.loads(text) for text in path.read_text(encoding="utf-8").split("\n")[:-1]]
