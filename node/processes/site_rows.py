"""The site's own rows, read by this installation's readers in a confined process that runs nothing of an app.

An app gets the examples of the form that its message asks for, read-only, and neither the files nor columns that
the message does not name. With them it gets what the node keeps: which are held out, and what is said of columns.

    node-rows/<key>/x.npy, y.npy, marks.npy, form.json      examples of one form
    node-rows/<key>/count.json                              how many there are; it is written last
    node-rows/<key>/description.json                        in place of these: what the site says of its data
    node-statistics/        what was said of columns: see `fedstride/tasks/own_files/kept_rows.py`
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedstride import __version__
from fedstride.tasks.data_toml.site import SiteData

from ..policy.file_access import Access
from .frames import Request
from .message_processes import Processes

COUNT = "count.json"

FORMS = 8
"""Forms of the site's examples that are kept; the one that was used longest ago goes first."""

MOST_FAULTS = 20
"""Lines about what of the data is not as the site's file says."""


class ReadError(Exception):
    """The rows cannot be read. The text may have cells of the data, and is for the node's own log."""


class SiteRows(NamedTuple):
    """The examples of a form: their folder, their number, and how many are held out, by share."""

    folder: Path
    examples: int
    held: Mapping[str, int]


class Counted(NamedTuple):
    """How many rows a site's data have, and how many ids if they have some, else rows: `min_rows` is of these."""

    rows: int
    ids: int


class Described(NamedTuple):
    """A folder with what the site says of its data, for an app to hand on; and lines for the node's own log."""

    folder: Path
    lines: Sequence[str]


class RowsReader:
    """Reads a site's data for the forms that messages ask for.

    `folder`: for what is read; `statistics`: for what is said of columns; both are the node's alone. `shares`: of
    the hold-out, that are counted; with `folds`, each fold of one is. `min_rows`: the smallest number of rows of
    which something is said.
    """

    def __init__(
        self,
        site: SiteData,
        folder: Path,
        statistics: Path,
        shares: Sequence[float],
        folds: bool,
        min_rows: int,
        access: Access,
        processes: Processes,
    ) -> None:
        self._site, self._folder, self._statistics = site, folder, statistics
        self._shares, self._folds, self._min_rows = shares, folds, min_rows
        self._access, self._processes = access, processes
        self._checked = "", Counted(0, 0)  # a state of the data that is as the site's file says

    def check(self, seconds: float) -> Counted | None:
        """How many rows there are, if all are as the site's own file says; None if it says nothing of them.

        Raises ReadError if they are not, DiedError if this takes longer.
        """
        return self._check(self._state(), seconds)

    def _check(self, state: str, seconds: float) -> Counted | None:
        if self._site.dictionary is None:
            return None
        if self._checked[0] != state:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            answer = self._answer({"check": self._site.plain()}, None, (), seconds)
            if faults := answer["faults"]:
                more = f"; and {len(faults) - MOST_FAULTS} more" if len(faults) > MOST_FAULTS else ""
                raise ReadError("; ".join(faults[:MOST_FAULTS]) + more)
            self._checked = state, Counted(answer["rows"], answer.get("ids", answer["rows"]))
        return self._checked[1]

    def of(self, form: Mapping[str, Any], seconds: float) -> SiteRows:
        """The examples of this form. They are read if the data have changed, or the form is new.

        Raises ReadError if the data do not fit, DiedError if reading takes longer than this.
        """
        state = self._state()
        self._check(state, seconds)
        wanted = {"site": self._site.plain(), "shares": list(self._shares), "folds": self._folds}
        folder, answer = self._made(form, state, wanted, seconds)
        return SiteRows(folder, answer["rows"], answer["held"])

    def described(self, form: Mapping[str, Any], seconds: float) -> Described:
        """What the site says of its data, for a message that asks it, and of columns of this form.

        Raises ReadError if the data cannot be read at all, DiedError if reading takes longer than this.
        """
        folder, answer = self._made(form, self._state(), {"describe": self._site.plain()}, seconds)
        return Described(folder, answer["lines"])

    def _made(
        self, form: Mapping[str, Any], state: str, wanted: dict[str, Any], seconds: float
    ) -> tuple[Path, dict[str, Any]]:
        """A folder with what is wanted of this form, made now or before, and what is said about it."""
        divided = [self._shares, self._folds, self._min_rows]
        about = [form, state, self._site.described(), *divided, __version__, sorted(wanted)]
        key = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
        folder = self._folder / key.hexdigest()[:32]
        if not (folder / COUNT).exists():
            self._read(form, folder, wanted, seconds)
        os.utime(folder)
        return folder, json.loads((folder / COUNT).read_text())

    def _read(self, form: Mapping[str, Any], folder: Path, wanted: dict[str, Any], seconds: float) -> None:
        for place in (self._folder, self._statistics):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
        old, new = self._old(), self._folder / f"new-{os.urandom(8).hex()}"
        new.mkdir(mode=0o700)
        more = {
            "form": dict(form),
            "min_rows": self._min_rows,
            "folder": str(new),
            "statistics": str(self._statistics),
        }
        count = self._answer(wanted | more, new, old, seconds)
        with open(new / COUNT, "x") as file:
            json.dump(count, file)
        new.rename(folder)

    def _answer(self, wanted: dict[str, Any], into: Path | None, old: Sequence[str], seconds: float) -> Any:
        """What a confined process with the installed readers answers. Raises ReadError."""
        written = () if into is None else (into, self._statistics)
        place = self._access.of_rows(self._site.path, self._folder, written, old)
        answer = self._processes.answer(Request({"read": wanted}, {}, b""), seconds, place)
        if answer.error is not None:
            raise ReadError(answer.error[1])
        try:
            return json.loads(answer.objects[answer.root])
        except (ValueError, KeyError):
            raise ReadError("the process that reads the data did not say what it has read") from None

    def _state(self) -> str:
        try:
            return state_of(self._site.path)
        except OSError as error:
            raise ReadError(f"the data {self._site.path} cannot be read: {error.strerror}") from error

    def _old(self) -> list[str]:
        """The names of the forms that make room for a new one, and of what was not read to its end."""
        folders = [folder for folder in self._folder.iterdir() if (folder / COUNT).exists()]
        folders.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
        kept = {folder.name for folder in folders[: FORMS - 1]}
        return [folder.name for folder in self._folder.iterdir() if folder.name not in kept]


def state_of(data: Path) -> str:
    """A digest of the names, sizes and times of the files, which changes if one of them changes.

    Of a link, its own time counts and that of the file behind it. Raises OSError for a link to nothing.
    """
    digest = hashlib.sha256()
    for path in sorted(_with_all_in(data)):
        times = [(about.st_size, about.st_mtime_ns) for about in (path.lstat(), path.stat())]
        digest.update(f"{path.relative_to(data.parent)!s} {times}\n".encode(errors="replace"))
    return digest.hexdigest()


def _with_all_in(data: Path) -> Iterator[Path]:
    """A file, or a folder with all that is in it; a folder behind a link once, whatever links lead to it."""
    seen = set[str]()
    yield data
    for folder, folders, files in os.walk(data, followlinks=True):
        if (real := os.path.realpath(folder)) in seen:
            folders.clear()
            continue
        seen.add(real)
        folders.sort()
        yield from (Path(folder) / name for name in (*folders, *files))
