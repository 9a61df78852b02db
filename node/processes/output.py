"""What the process of a message writes to its output: read under a bound, and shown line by line.

An app cannot write anything that looks like a line of the node: each line says whose it is, and control characters
are replaced.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from fedstride.errors import printable

MOST_BYTES = 64 * 2**10
"""Of one message. What follows is read, so that the process is not stopped, and dropped."""

MOST_LINES = 2_000
"""Of one message."""

MOST_LINE = 2_000
"""Characters of a line that are shown."""

MOST_FILES = 100
"""Of unsigned apps, one for each message in which they wrote something."""

_READ_AT_ONCE = 2**16
READS_AT_ONCE = 4


class Output:
    """Reads one pipe without waiting. `show`: gets each line."""

    def __init__(self, descriptor: int, show: Callable[[str], None]) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor
        self._show = show
        self._left, self._lines_left = MOST_BYTES, MOST_LINES
        self._rest = b""

    def fileno(self) -> int:
        """The descriptor, for select; -1 when nothing more comes."""
        return -1 if self._descriptor is None else self._descriptor

    def read(self) -> None:
        """Show the lines that are there, or the first ones: a writer must not keep the node."""
        for _ in range(READS_AT_ONCE):
            if self._descriptor is None:
                return
            try:
                data = os.read(self._descriptor, _READ_AT_ONCE)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._end()
                return
            self._take(data)

    def close(self) -> None:
        """Show what is left, and close the pipe."""
        self.read()
        self._end()

    def _end(self) -> None:
        if self._descriptor is None:
            return
        os.close(self._descriptor)
        self._descriptor = None
        if self._rest:
            self._line(self._rest)

    def _take(self, data: bytes) -> None:
        if self._left <= 0:
            return
        some = data[: self._left]
        self._left -= len(some)
        *lines, self._rest = (self._rest + some).split(b"\n")
        for line in lines[: self._lines_left]:
            self._line(line)
        self._lines_left -= len(lines)
        if self._left <= 0 or self._lines_left <= 0:
            if self._lines_left > 0:
                self._line(self._rest)
            self._left, self._rest = 0, b""
            self._show(f"(what follows is not shown: a message may write {MOST_BYTES} bytes, {MOST_LINES} lines)")

    def _line(self, line: bytes) -> None:
        text = line.decode(errors="replace").rstrip("\r")
        self._show(printable(text[:MOST_LINE]))


class ProcessOutputs:
    """Where lines of apps go: those of signed apps to the node's own output, others to a file of their message.

    `folder`: for the files; the newest are kept. `say`: writes a line to the node's output.
    """

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder, self._say = folder, say

    def of(self, run: int, message: str, is_signed: bool) -> Callable[[str], None]:
        """What takes the lines that the app writes for a message."""
        if is_signed:
            return lambda line: self._say(f"[run {run}, message {message[:12]}] {line}")
        path = self._folder / f"run-{run}-message-{message[:12]}.txt"
        return lambda line: self._append(path, line)

    def _append(self, path: Path, line: str) -> None:
        """Add a line to a file. A disk that is full does not end the node."""
        with contextlib.suppress(OSError):
            is_new = not path.exists()
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(
                path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
            with open(descriptor, "a", encoding="utf-8", errors="replace") as file:
                file.write(f"{line}\n")
            if is_new:
                self._remove_old()

    def _remove_old(self) -> None:
        files = sorted(self._folder.iterdir(), key=lambda file: file.stat().st_mtime, reverse=True)
        for old in files[MOST_FILES:]:
            old.unlink()
