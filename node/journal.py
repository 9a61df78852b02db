"""A node's log: JSON lines, each chained to the one before by a hash, appended, forced to the disk, and rotated.

It does not know what is logged, and nothing of Flower.

    {"number": 7, "time": "...", "event": "...", ..., "previous": <sha256 of line 6>, "sha256": <of this line>}

The digest of a line covers everything before `, "sha256"`. A line that is changed, removed, added or exchanged
breaks the chain. Lines that are cut off at the end leave no gap, so a second file (`.head`) has the number and the
digest of the newest line. The digests are no signatures: who may write to both files can write another log.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedstride import signals

MOST_BYTES = 16 * 2**20
"""A file of this size is renamed, and the next line begins a new one. No file is ever deleted."""

HEAD = ".head"
_MARK = ', "sha256": "'
_OLDER = re.compile(r"\.(\d{6})")


class Journal:
    """The log of one node. Raises OSError if it cannot be written, or if another process writes it."""

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES) -> None:
        self.path = path
        self._most_bytes = most_bytes
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = os.open(path.with_name(path.name + HEAD), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            last = None
            for file in files(path):
                last = next((line for line in reversed(_lines(file)) if line.digest), last)
            self._number, self._digest = (0, "") if last is None else (last.number, last.digest)
            with self._opened() as descriptor:
                os.fchmod(descriptor, 0o600)
                end = os.fstat(descriptor).st_size
                if end and os.pread(descriptor, 1, end - 1) != b"\n":  # a line that a crash has cut short
                    os.write(descriptor, b"\n")
        except OSError:
            os.close(self._lock)
            raise

    @signals.held()
    def write(self, event: str, **values: Any) -> None:
        """Append a line and force it to the disk. Raises OSError if that fails; then nothing is appended."""
        row = {"number": self._number + 1, "time": _now(), "event": event, **values, "previous": self._digest}
        text = json.dumps(row)[:-1]
        digest = hashlib.sha256(text.encode()).hexdigest()
        self._rotate()
        with self._opened() as descriptor:
            before = os.fstat(descriptor).st_size
            try:
                _write_all(descriptor, f'{text}{_MARK}{digest}"}}\n'.encode())
                os.fsync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, before)
                raise
        self._number, self._digest = row["number"], digest
        with contextlib.suppress(OSError):  # the line is on the disk; that the head is older is no fault
            os.pwrite(self._lock, f"{self._number:020d} {digest}\n".encode(), 0)  # always of the same length
            os.fsync(self._lock)

    def close(self) -> None:
        """Let another process write the log."""
        os.close(self._lock)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
        descriptor = os.open(self.path, flags, 0o600)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _rotate(self) -> None:
        if not self.path.exists() or self.path.stat().st_size < self._most_bytes:
            return
        taken = [int(each.name[-6:]) for each in files(self.path)[:-1]]
        os.link(self.path, self.path.with_name(f"{self.path.name}.{max(taken, default=0) + 1:06d}"))
        os.unlink(self.path)  # linked first, so that a file that exists is an error
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


@dataclass(frozen=True)
class Line:
    """One line. Without a digest, it is not as it was written."""

    row: dict[str, Any]
    digest: str

    @property
    def number(self) -> int:
        """How many lines were written before, and this one."""
        number = self.row.get("number")
        return number if type(number) is int else 0


@dataclass
class Read:
    """What was read of a log: the rows of all lines that are as they were written, and all faults."""

    rows: list[dict[str, Any]] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    newest: str = ""  # the digest of the last line


def files(path: Path) -> list[Path]:
    """The files of a log that exist, the oldest first."""
    older = [
        each
        for each in path.parent.glob(f"{glob.escape(path.name)}.*")
        if _OLDER.fullmatch(each.name[len(path.name) :])
    ]
    return [*sorted(older), *([path] if path.exists() else [])]


def read(path: Path) -> Read:
    """Read and verify a log with all its files. Raises OSError if one of them cannot be read."""
    found, before = Read(), Line({"number": 0}, "")
    digests = {0: ""}
    for file in files(path):
        for place, line in enumerate(_lines(file), start=1):
            where = f"{file.name}, line {place}"
            if not line.digest:
                found.faults.append(f"{where}: it is not as it was written")
                continue
            if line.number != before.number + 1 or line.row.get("previous") != before.digest:
                found.faults.append(
                    f"{where}: it has number {line.number} and follows number {before.number}; lines are missing, "
                    "added or exchanged before it"
                )
            found.rows.append(line.row)
            digests[line.number] = line.digest
            before = line
    found.newest = before.digest
    return _compared(found, path, before.number, digests)


def _compared(found: Read, path: Path, last: int, digests: dict[int, str]) -> Read:
    """Compare with the number and digest of the newest line, of which a crash may have left those before it."""
    head = path.with_name(path.name + HEAD)
    text = head.read_text(errors="replace").split() if head.exists() else []
    if len(text) == 2 and text[0].isdecimal():
        number, digest = int(text[0]), text[1]
        if digests.get(number) != digest:
            found.faults.append(
                f"{path.name}: the last line is number {last}, but number {number} was written; lines are missing "
                "at the end"
                if number > last
                else f"{path.name}: line number {number} is not the one that was written"
            )
        elif number < last - 1:
            found.faults.append(f"{path.name}: {last - number} lines were added after number {number}")
    elif last:
        found.faults.append(
            f"{head.name} is missing or damaged, so lines that are cut off at the end are not noticed"
        )
    return found


def _lines(file: Path) -> list[Line]:
    """The lines of one file. Raises OSError."""
    return [_line(piece) for piece in file.read_bytes().split(b"\n") if piece]


def _line(piece: bytes) -> Line:
    text, mark, rest = piece.rpartition(_MARK.encode())
    digest = hashlib.sha256(text).hexdigest()
    if mark and rest == f'{digest}"}}'.encode():
        with contextlib.suppress(ValueError):
            row = json.loads(piece)
            return Line(row, digest)
    return Line({}, "")


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
