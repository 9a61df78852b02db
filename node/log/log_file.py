"""A node's log: lines of JSON that are chained and signed, appended, forced to the disk, and rotated.

`fedstride/files/chained_lines.py` says what is hashed and signed.

    {"number": 7, "time": "...", "event": "...", ..., "key": "5f0c...", "previous_sha256": ..., "sha256": ...,
     "signature": ...}

`number` counts the lines. `key` is the id of the key that signs. The first line has a random `log`, so that two
logs of a key are never alike. `clock_before` is the time of the line before, where the clock was set back since
then. `missing` is what the node did not find again when it opened the log. What a log is worth:
`verification.py`.

Lines that are cut off at the end leave no gap, so a second file (`.head`) has the number and digest of the newest.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fedstride.errors import ConfigError
from fedstride.files import atomic
from fedstride.files.chained_lines import ChainedLine, checked_line, digest_of, line_of
from fedstride.processes import unix_signals

if TYPE_CHECKING:
    from ..keys import Signer

MOST_BYTES = 16 * 2**20
"""A file of this size is renamed, and the next line begins a new one. No file is ever deleted."""

CLOCK_STEP = 5.0
"""Seconds by which a line may be older than the line before it: clocks are set while a node runs."""

_OLDER = re.compile(r"\.(\d{6})")


class LogHead(NamedTuple):
    """A line of a log, by its number and digest."""

    number: int
    digest: str

    def __str__(self) -> str:
        return f"{self.number}:{self.digest}"


class LogFile:
    """The log of one node. `signer`: None for lines without signature.

    Raises OSError if it cannot be written, or if another process writes it; ConfigError if it has signed lines,
    and there is no signer.
    """

    def __init__(self, path: Path, most_bytes: int = MOST_BYTES, signer: Signer | None = None) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._signer = signer
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = _opened(head_of(path))
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(self._lock).st_nlink != 1:  # it is written over
                raise OSError(errno.EMLINK, "its .head has another name, too; remove it")
            self._go_on()
        except BaseException:
            os.close(self._lock)
            raise

    def _go_on(self) -> None:
        """Find the line after which the next one comes, and what is missing."""
        lines = [line for line in map(checked_line, pieces(self.path)) if line is not None]
        last = self._last(lines)
        self._newest = LogHead(0, "") if last is None else LogHead(number_of(last), last.digest)
        self._time = "" if last is None else str(last.row.get("time", ""))
        text = os.pread(self._lock, 200, 0).decode(errors="replace")
        self._missing = _missing(parsed(text), lines)
        with self._file() as descriptor:
            end = os.fstat(descriptor).st_size
            if end and os.pread(descriptor, 1, end - 1) != b"\n":  # a line that a crash has cut short
                os.write(descriptor, b"\n")

    def _last(self, lines: list[ChainedLine]) -> ChainedLine | None:
        """The newest line that is the node's own; with a key that has signed nothing yet, the newest of all."""
        newest = lines[-1] if lines else None
        if self._signer is not None:
            own_lines = (line for line in reversed(lines) if line.row.get("key") == self._signer.public.id)
            return next(
                (line for line in own_lines if self._signer.public.has_signed(line.digest, line.signature)), newest
            )
        if any(line.signature for line in lines):
            raise ConfigError(
                f"the log {self.path} has signed lines, and this node has no key; give it the key, or another log "
                "with log=PATH in --node-config"
            )
        return newest

    @unix_signals.held()
    def write(self, event: str, **values: Any) -> None:
        """Append a line and force it to the disk. Raises OSError if that fails; then nothing is appended."""
        row: dict[str, Any] = {"number": self._newest.number + 1, "time": _now(), "event": event, **values}
        row |= self._remarks(row["time"])
        sign = None if self._signer is None else self._signer.sign
        text = line_of(row, self._newest.digest, sign)
        self._rotate()
        with self._file() as descriptor:
            before = os.fstat(descriptor).st_size
            try:
                _write_all(descriptor, f"{text}\n".encode())
                os.fsync(descriptor)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, before)
                raise
        self._newest, self._time, self._missing = LogHead(row["number"], digest_of(text)), row["time"], ""
        with contextlib.suppress(OSError):  # the line is on the disk; that the head is older is no fault
            number, digest = self._newest
            os.pwrite(self._lock, f"{number:020d} {digest}\n".encode(), 0)  # always of the same length
            os.fsync(self._lock)

    def _remarks(self, now: str) -> dict[str, str]:
        """What the log itself says in the next line, beside what it is told."""
        remarks = {} if self._newest.number else {"log": secrets.token_hex(16)}
        if self._signer is not None:
            remarks["key"] = self._signer.public.id
        if is_before(now, self._time):
            remarks["clock_before"] = self._time
        if self._missing:
            remarks["missing"] = self._missing
        return remarks

    def close(self) -> None:
        """Let another process write the log."""
        os.close(self._lock)

    @contextlib.contextmanager
    def _file(self) -> Iterator[int]:
        descriptor = _opened(self.path, os.O_APPEND)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def _rotate(self) -> None:
        if not os.path.lexists(self.path) or self.path.lstat().st_size < self._most_bytes:
            return
        taken = [int(file.name[-6:]) for file in files(self.path)[:-1]]
        os.link(self.path, self.path.with_name(f"{self.path.name}.{max(taken, default=0) + 1:06d}"))
        os.unlink(self.path)  # linked first, so that a file that exists is an error
        atomic.sync(self.path.parent)


def head_of(path: Path) -> Path:
    """The file with the number and digest of a log's newest line; also the lock of the process that writes."""
    return path.with_name(path.name + ".head")


def _missing(head: LogHead | None, lines: list[ChainedLine]) -> str:
    """What is not there: the line that the head names, or the head; empty if nothing.

    A crash leaves an empty head after the first line.
    """
    if head is None:
        return "head" if len(lines) > 1 else ""
    return "" if head.digest in {line.digest for line in lines} else str(head)


def parsed(text: str) -> LogHead | None:
    """The head in this text: number and digest, with a blank or a colon between them; None if it is none."""
    match = re.fullmatch(r"(\d{1,20})[ :]([0-9a-f]{64})\n?", text, re.ASCII)
    return None if match is None else LogHead(int(match[1]), match[2])


def number_of(line: ChainedLine) -> int:
    """How many lines were written before, and this one; 0 if it does not say so."""
    number = line.row.get("number")
    return number if type(number) is int else 0


def is_before(time: object, other: object) -> bool:
    """Whether a time in a line is earlier than another one, by more than `CLOCK_STEP`; not if one is no time."""
    try:
        difference = datetime.fromisoformat(str(other)) - datetime.fromisoformat(str(time))
        return difference.total_seconds() > CLOCK_STEP
    except (ValueError, TypeError):
        return False


def files(path: Path) -> list[Path]:
    """The files of a log that exist, the oldest first."""
    older = [
        file
        for file in path.parent.glob(f"{glob.escape(path.name)}.*")
        if _OLDER.fullmatch(file.name[len(path.name) :])
    ]
    return [*sorted(older), *([path] if os.path.lexists(path) else [])]


def pieces(path: Path) -> list[bytes]:
    """The lines of all files of a log, as bytes. Raises OSError."""
    return [piece for file in files(path) for piece in pieces_of(file)]


def pieces_of(file: Path) -> list[bytes]:
    """The lines of one file. Raises OSError, also for a link and for what is no file."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as opened_file:
        _check_kind(descriptor)
        return [piece for piece in opened_file.read().split(b"\n") if piece]


def _opened(path: Path, flags: int = 0) -> int:
    """Open a file of the log for writing, which is then its owner's alone. Raises OSError for a link."""
    flags |= os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        _check_kind(descriptor)
        os.fchmod(descriptor, 0o600)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _check_kind(descriptor: int) -> None:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        raise OSError(errno.EINVAL, "it is not a file")


def _write_all(descriptor: int, content: bytes) -> None:
    while content:
        content = content[os.write(descriptor, content) :]


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
