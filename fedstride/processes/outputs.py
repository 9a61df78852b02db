"""Standard output and error of a command whose reader may go: `| head`, a closed terminal, a full disk.

What a command does, such as a run of some hours, does not depend on whether somebody still reads what it prints.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

GONE = (errno.EPIPE, errno.EIO, errno.ENXIO)
"""The reader has gone. With any other error somebody will look for what is missing."""


class Lasting:
    """A stream that goes on without output after the first error of the system. `lost` is that error."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.lost: OSError | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write, or do nothing if the output is lost."""
        with self._kept():
            return self._stream.write(text)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Write all of them, or do nothing if the output is lost."""
        self.write("".join(lines))

    def flush(self) -> None:
        """Flush, or do nothing if the output is lost."""
        with self._kept():
            self._stream.flush()

    @contextlib.contextmanager
    def _kept(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            self.lost = self.lost or error
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, self._stream.fileno())  # for what is still in the buffer, and for child processes
                os.close(nowhere)


class Outputs:
    """Both streams of a command."""

    def __init__(self, streams: list[Lasting]) -> None:
        self._streams = streams

    def missing(self) -> OSError | None:
        """Why output is missing that somebody may look for; None if all was written, or the reader has gone."""
        for stream in self._streams:
            stream.flush()
        lost = [stream.lost for stream in self._streams if stream.lost is not None]
        return next((error for error in lost if error.errno not in GONE), None)


@contextlib.contextmanager
def lasting() -> Iterator[Outputs]:
    """Inside, standard output and error are `Lasting`."""
    before = sys.stdout, sys.stderr
    made = [None if stream is None else Lasting(stream) for stream in before]
    sys.stdout, sys.stderr = made  # a process without a stream has None there
    try:
        yield Outputs([stream for stream in made if stream is not None])
    finally:
        sys.stdout, sys.stderr = before
