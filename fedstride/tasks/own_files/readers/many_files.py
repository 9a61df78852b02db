"""Reads many files, and says of all that do not fit what their faults are, in one line."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ....errors import DataError

SHOWN = 3
"""Files of a kind of fault that a message names."""

OTHER = "other faults"

Read = TypeVar("Read")


class FileError(DataError):
    """A file that does not fit: the kind of its fault, the whole line about it, and what to do about the kind."""

    def __init__(self, kind: str, text: str, remedy: str) -> None:
        super().__init__(f"{text}; {remedy}" if remedy else text)
        self.kind, self.remedy = kind, remedy


def each_of(files: Sequence[Path], suffixes: tuple[str, ...], read: Callable[[Path], Read]) -> Iterator[Read]:
    """What `read` returns for each file. All files are read, so that a fault of one does not hide those of others.

    No file is skipped: one whose name does not end with one of `suffixes` has a fault, too. Raises DataError
    behind the last one: that of the file if one alone does not fit, else one with the number of files of each kind
    of fault, the names of a few, and what to do.
    """
    faults: list[tuple[Path, DataError]] = []
    for file in files:
        try:
            _check_name(file, suffixes)
            content = read(file)
        except DataError as error:
            faults.append((file, error))
        else:
            if not faults:
                yield content
    if faults:
        raise _joined(faults, files)


def _check_name(file: Path, suffixes: tuple[str, ...]) -> None:
    if not file.name.lower().endswith(suffixes) or not file.is_file():
        needed = f"it must be a file whose name ends with {', '.join(suffixes)}"
        raise FileError("other names", f"{file} cannot be an example: {needed}", "move it out of the folder")


def _joined(faults: Sequence[tuple[Path, DataError]], files: Sequence[Path]) -> DataError:
    """One error for the faults of some of these files: of each kind how many, a few names, and what to do."""
    if len(faults) == 1:
        return faults[0][1]
    kinds: dict[str, list[Path]] = {}
    what_to_do: dict[str, str] = {}
    for file, error in faults:
        kind, remedy = (error.kind, error.remedy) if isinstance(error, FileError) else (OTHER, "")
        kinds.setdefault(kind, []).append(file)
        what_to_do.setdefault(kind, remedy or f"the first: {error}")
    folder = Path(os.path.commonpath([file.parent for file in files]))
    above = folder.parent if all(file.parent == folder for file in files) else folder
    said = [
        f"{len(those)} with {kind} ({_names(those, above)}): {what_to_do[kind]}" for kind, those in kinds.items()
    ]
    return DataError(f"{folder}: {len(faults)} of {len(files)} files cannot be used: {'; '.join(said)}")


def _names(files: Iterable[Path], above: Path) -> str:
    named = [file.relative_to(above).as_posix() for file in files]
    return ", ".join(named[:SHOWN]) + (", ..." if len(named) > SHOWN else "")
