"""The site's own rows, read by this installation's readers in a confined process that runs nothing of an app.

An app gets the examples of the form that its message asks for, read-only, and neither the files nor columns that
the message does not name. What the node keeps beside them is their number.

    node-rows/<key>/x.npy, y.npy, form.json      examples of one form
    node-rows/<key>/count.json                   how many there are; it is written last
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedstride import __version__

from .access import Access
from .frames import Request
from .processes import Processes

COUNT = "count.json"

FORMS = 8
"""Forms of the site's examples that are kept; the one that was used longest ago goes first."""

FAILED = 2
"""Flower's code of an error that a ClientApp raises."""


class ReadError(Exception):
    """The rows cannot be read. `code` and `reason`: of the error that an app would answer with."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class Reader:
    """Reads a site's data for the forms that messages ask for.

    `data`: a file or folder. `folder`: for what is read, which is the node's alone.
    """

    def __init__(self, data: Path, folder: Path, access: Access, processes: Processes) -> None:
        self._data, self._folder = data, folder
        self._access, self._processes = access, processes

    def of(self, form: Mapping[str, Any], seconds: float) -> Path:
        """The folder with the examples of this form. They are read if the data have changed, or the form is new.

        Raises ReadError if the data do not fit the form, DiedError if reading takes longer than this.
        """
        try:
            state = state_of(self._data)
        except OSError as error:
            raise ReadError(FAILED, f"the data of this node cannot be read: {error.strerror}") from error
        key = hashlib.sha256(json.dumps([form, state, __version__], sort_keys=True).encode())
        folder = self._folder / key.hexdigest()[:32]
        if not (folder / COUNT).exists():
            self._read(form, folder, seconds)
        os.utime(folder)
        return folder

    def _read(self, form: Mapping[str, Any], folder: Path, seconds: float) -> None:
        new = self._folder / f"new-{os.urandom(8).hex()}"
        new.mkdir(mode=0o700, parents=True)
        settings = {"read": {"data": str(self._data), "form": dict(form), "folder": str(new)}}
        place = self._access.of_rows(self._data, new, self._newest())
        answer = self._processes.answer(Request(settings, {}, b""), seconds, place)
        if answer.error is not None:
            raise ReadError(*answer.error)
        count = answer.objects[answer.root]
        if not count.isdigit():
            raise ReadError(FAILED, "the process that reads the data did not say how many examples they are")
        with open(new / COUNT, "xb") as file:
            file.write(count)
        new.rename(folder)

    def _newest(self) -> list[str]:
        """The names of the forms that stay beside a new one."""
        found = [each for each in self._folder.iterdir() if (each / COUNT).exists()]
        found.sort(key=lambda each: each.stat().st_mtime, reverse=True)
        return [each.name for each in found[: FORMS - 1]]


def state_of(data: Path) -> str:
    """A digest of the names, sizes and times of the files, which changes if one of them changes."""
    found = hashlib.sha256()
    for path in [data] if not data.is_dir() else sorted(data.rglob("*")):
        about = path.stat()
        found.update(
            f"{path.relative_to(data.parent)!s} {about.st_size} {about.st_mtime_ns}\n".encode(errors="replace")
        )
    return found.hexdigest()
