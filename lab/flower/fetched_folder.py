"""Writes the files of a stream into a new folder that is complete or does not exist.

The format of the stream: `superlink.run_folder_stream`.
"""

from __future__ import annotations

import contextlib
import hashlib
import operator
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from fedstride.errors import RunError
from fedstride.files.bounded_reading import from_json

DAMAGED = "what arrived is damaged"

MOST_LINE = 2**14
"""Bytes of a line between two files."""

MOST_FILES, MOST_DEPTH = 100_000, 17
"""Files and folders, and names in a path. The SuperLink hands over at most 16 levels of folders."""

MOST_BYTES = 16 * 10**9
"""Of all files together, unless the user allows more."""

EACH = 4096
"""Bytes that a file or folder takes beside its content."""


class FetchedFile:
    """The files of a stream, each with its SHA-256 in `sums` once it is verified; RunError if one is not."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self.folder = folder
        self._most_bytes = most_bytes
        self._folders: set[PurePosixPath] = set()
        self._taken = 0  # bytes on the disk, with those that are announced
        self.sums: dict[str, str] = {}
        self.complete = False
        self.bytes = 0
        self._name = ""
        self._file: IO[bytes] | None = None
        self._left = 0
        self._digest = hashlib.sha256()
        self._line = b""

    def take(self, piece: bytes) -> None:
        """Use the next bytes of the stream."""
        while piece:
            if self._file is not None and self._left:
                here, piece = piece[: self._left], piece[self._left :]
                self._write(here)
                continue
            end, newline, rest = piece.partition(b"\n")
            self._line, piece = self._line + end, rest
            if len(self._line) > MOST_LINE:
                raise self._damaged("a line is too long")
            if newline:
                line, self._line = self._line, b""
                self._act(line)

    def _act(self, line: bytes) -> None:
        try:
            entry: dict[str, Any] = from_json(line)
            if self.complete:
                raise ValueError("something follows the end")
            if self._file is not None:
                self._close(entry["sha256"])
            elif "end" in entry:
                self._end(entry["end"])
            else:
                self._open(str(entry["file"]), operator.index(entry["size"]))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise self._damaged(type(error).__name__) from error

    def _open(self, name: str, size: int) -> None:
        path = PurePosixPath(name)
        if not is_plain(name) or name in self.sums or size < 0:
            raise ValueError
        self._folders |= set(path.parents)
        self._account(size)
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        self._name, self._file, self._left = name, place.open("xb"), size
        self._digest = hashlib.sha256()

    def _account(self, size: int) -> None:
        """Raise RunError, before anything is written, for more than is allowed or than the disk has room for."""
        count = len(self.sums) + len(self._folders)
        if count > MOST_FILES:
            raise RunError(f"the folder has more than {MOST_FILES} files and folders; nothing was kept")
        self._taken += size
        needed = self._taken + EACH * count
        if needed > self._most_bytes:
            raise RunError(
                f"the folder has more than {self._most_bytes / 1e9:g} GB; nothing was kept; to fetch it, allow "
                "more with --most GIGABYTES"
            )
        free = shutil.disk_usage(self.folder).free
        if size > free:
            raise RunError(
                f"there is no room: the next file has {size} bytes, {free} are free; nothing was kept; choose "
                "another folder with -o"
            )

    def _write(self, piece: bytes) -> None:
        assert self._file is not None
        self._digest.update(piece)
        self._file.write(piece)
        self._left -= len(piece)
        self.bytes += len(piece)

    def _close(self, value: str) -> None:
        assert self._file is not None
        if value != self._digest.hexdigest():
            raise ValueError
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file, self.sums[self._name] = None, value

    def _end(self, value: str) -> None:
        if value != hashlib.sha256(b"".join(bytes.fromhex(digest) for digest in self.sums.values())).hexdigest():
            raise ValueError
        self.complete = True

    def _damaged(self, what: str) -> RunError:
        return RunError(f"{DAMAGED} ({what} in {self._name or 'the list of files'}); fetch it again")


def is_plain(name: str) -> bool:
    """Whether this is a path below a folder that can be read in a terminal: no hidden part, and not too deep."""
    parts = name.split("/")
    plain = all(part and part.isprintable() and part[0] != "." and "\\" not in part for part in parts)
    return plain and len(parts) <= MOST_DEPTH


@contextlib.contextmanager
def unpacking(to: Path) -> Iterator[Path]:
    """A temporary folder that becomes `to` at the end; after an error, nothing is left of it.

    What a killed process left of the same fetch is removed first. Raises RunError if `to` cannot be written.
    """
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        for old in to.parent.glob(f".{to.name}.fetch-*"):
            if (match := re.search(r"fetch-(\d+)-", old.name)) and not Path(f"/proc/{match[1]}").exists():
                shutil.rmtree(old, ignore_errors=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{to.name}.fetch-{os.getpid()}-", dir=to.parent))
    except OSError as error:
        raise RunError(f"{to} cannot be written ({error.strerror}); choose another folder with -o") from error
    try:
        yield temporary
        temporary.rename(to)
    except OSError as error:
        raise RunError(f"{to} cannot be written ({error.strerror}); choose another folder with -o") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
