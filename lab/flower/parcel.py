"""Writes the files that arrive in the log of a courier: into a new folder that is complete or does not exist.

Knows nothing about connections: it gets lines.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from fedstride.errors import RunError

from .courier import MARK

DAMAGED = "what arrived is damaged"


class Parcel:
    """The files of a courier, each with its SHA-256 in `sums` once it is verified; RunError if one is not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sums: dict[str, str] = {}
        self.complete = False
        self.bytes = 0
        self._name = ""
        self._file: IO[bytes] | None = None
        self._digest = hashlib.sha256()

    def take(self, line: str) -> None:
        """Use one line of the courier's log; lines that are not its own are ignored."""
        mark, _, rest = line.partition(" ")
        kind, _, value = rest.partition(" ")
        if mark != MARK:
            return
        try:
            {"file": self._open, "data": self._write, "sum": self._close, "end": self._end}[kind](value)
        except (KeyError, ValueError, TypeError, zlib.error, binascii.Error) as error:
            raise RunError(f"{DAMAGED} ({type(error).__name__} in {self._name or 'the list of files'})") from error

    def _open(self, value: str) -> None:
        self._name = json.loads(value)
        path = PurePosixPath(self._name)
        if self._file is not None or path.is_absolute() or ".." in path.parts or self._name in self.sums:
            raise ValueError
        place = self.folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        self._file, self._digest = place.open("xb"), hashlib.sha256()

    def _write(self, value: str) -> None:
        if self._file is None:
            raise ValueError
        piece = zlib.decompress(base64.b85decode(value))
        self._digest.update(piece)
        self._file.write(piece)
        self.bytes += len(piece)

    def _close(self, value: str) -> None:
        if self._file is None or value != self._digest.hexdigest():
            raise ValueError
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file, self.sums[self._name] = None, value

    def _end(self, value: str) -> None:
        if self._file is not None or value != hashlib.sha256("".join(self.sums.values()).encode()).hexdigest():
            raise ValueError
        self.complete = True


@contextlib.contextmanager
def unpacking(to: Path) -> Iterator[Path]:
    """A temporary folder that becomes `to` at the end; after an error, nothing is left of it.

    What a killed process left of the same fetch is removed first. Raises RunError if `to` cannot be written.
    """
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        for old in to.parent.glob(f".{to.name}.fetch-*"):
            if (found := re.search(r"fetch-(\d+)-", old.name)) and not Path(f"/proc/{found[1]}").exists():
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
