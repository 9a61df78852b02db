"""Files of lines that are appended to, also on a disk that is temporarily full or read-only."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Lines:
    """Appends lines to a file. Lines that could not be written are kept and written with the next ones.

    Before each write, an incomplete line of an earlier failed write is removed.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._complete_bytes = path.stat().st_size if path.exists() else 0
        self._pending: list[str] = []

    def append(self, lines: Iterable[str]) -> None:
        """Write these lines and all pending ones. Raises OSError if that fails; the lines are then pending."""
        self._pending += lines
        if not self._pending:
            return
        content = "".join(line + "\n" for line in self._pending).encode()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT, 0o666)
        try:
            os.ftruncate(descriptor, self._complete_bytes)
            os.lseek(descriptor, self._complete_bytes, os.SEEK_SET)
            written = 0
            while written < len(content):
                written += os.write(descriptor, content[written:])
        finally:
            os.close(descriptor)
        self._complete_bytes += len(content)
        self._pending.clear()

    def sync(self) -> None:
        """Make sure that all written lines are on the disk (fsync)."""
        if self.path.exists():
            descriptor = os.open(self.path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows of a .jsonl file; an empty list if the file does not exist.

    Text after the last line break is ignored: a run is still writing it, or was killed while it wrote it.
    """
    if not path.is_file():
        return []
    return [json.loads(text) for text in path.read_text(encoding="utf-8").split("\n")[:-1]]
