"""Files of lines: appended to, also on a disk that is temporarily full or read-only; read and verified."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedstride.files import bounded_reading
from fedstride.files.chained_lines import ChainedLine, checked_line, follow, once

from .row_values import is_row

SHOWN = 3  # places that a message names


class LineFile:
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
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
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


@dataclass(frozen=True)
class LinesRead:
    """What a file of chained lines contains: see `fedstride.files.chained_lines`."""

    path: Path
    lines: list[ChainedLine]  # those that verify, in the file's order
    damaged: list[str]  # the places of the others, such as `line 5 (after round 3)`
    gaps: list[str]  # the places before which a line is missing, or which are not in the order of writing

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the lines that verify."""
        return [line.row for line in self.lines]

    @property
    def fault(self) -> str | None:
        """One line that names all damage; None if there is none."""
        parts = []
        if self.damaged:
            whole = len(self.lines) + len(self.damaged)
            parts.append(f"{len(self.damaged)} of {whole} lines do not have their digest: {_listed(self.damaged)}")
        if self.gaps:
            parts.append(f"lines are missing or exchanged before {_listed(self.gaps)}")
        return f"{self.path} is damaged: {'; '.join(parts)}" if parts else None


def find_lines(path: Path) -> LinesRead:
    """Read and verify a .jsonl file; no lines if it does not exist. Raises OSError if it cannot be read.

    Text after the last line break is ignored: a run is still writing it, or was killed while it wrote it.
    """
    content = bounded_reading.content(path) if path.exists() else b""
    *pieces, rest = content.split(b"\n")
    if _row(rest[:-1]):  # a whole line, but what follows it is not a line break
        pieces.append(rest)
    lines = once(map(_row, pieces))
    damaged, gaps = [], []
    server_round = None
    for number, (line, follows) in enumerate(zip(lines, follow(lines), strict=True), start=1):
        if line is None:
            damaged.append(f"line {number}" + ("" if server_round is None else f" (after round {server_round})"))
            continue
        server_round = line.row["round"]
        if not follows:
            gaps.append(f"line {number} (round {server_round})")
    return LinesRead(path, [line for line in lines if line is not None], damaged, gaps)


def _row(piece: bytes) -> ChainedLine | None:
    """The line, if it verifies and its row has the form of a row; whoever writes the folder can chain any."""
    line = checked_line(piece)
    return line if line is not None and is_row(line.row) else None


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The rows whose lines verify, for those who follow a run; `find_lines` also says what is damaged."""
    return find_lines(path).rows


def _listed(places: Sequence[str]) -> str:
    more = len(places) - SHOWN
    return ", ".join(places[:SHOWN]) + (f" and {more} more" if more > 0 else "")
