"""The files of a published data set: where they are, whether they are complete, how to get missing ones."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from ...errors import ConfigError, DataError
from ...settings import Influence, Setting
from ..files import opened

Root = Annotated[
    str | None,
    Setting(
        "folder that contains the data set's folder; default: $FEDSTRIDE_DATA", kind=Influence.NONE, path=True
    ),
]
Download = Annotated[
    bool, Setting("download missing files into the folder (needs torchvision)", kind=Influence.NONE)
]
"""The settings that all data sets on disk have."""

ROOT_VARIABLE = "FEDSTRIDE_DATA"


@dataclass(frozen=True)
class Published:
    """A data set as it is published: its name in overrides, its folder below the root, and where it is from."""

    task: str
    folder: str
    source: str  # an address for people
    torchvision: str = ""  # the class that can download it

    def locate(self, root: str | None, names: Iterable[str], download: bool) -> list[Path]:
        """The paths of these files, which exist. A file may also be there packed, as `NAME.gz`.

        Raises ConfigError if no root folder is given, DataError if files are missing and not downloaded.
        """
        base = root_folder(root, self.task)
        names = list(names)
        missing = [name for name in names if _existing(base / self.folder / name) is None]
        if missing and download:
            self._download(base)
            missing = [name for name in names if _existing(base / self.folder / name) is None]
        if missing:
            raise DataError(self._missing(base, missing))
        return [path for name in names if (path := _existing(base / self.folder / name)) is not None]

    def require(self, paths: Sequence[Path]) -> None:
        """Raise DataError, with where to get the data, if one of these files or folders does not exist."""
        missing = [path for path in paths if not path.exists()]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise DataError(
                f"task = {self.task!r}: {', '.join(map(str, missing[:3]))}{more} missing; get the data from "
                f"{self.source} and unpack them there, or set task.root to the folder that contains "
                f"{self.folder.split('/')[0]!r}"
            )

    def _missing(self, base: Path, names: list[str]) -> str:
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""
        offer = "set task.download=true, or " if self.torchvision else ""
        return (
            f"task = {self.task!r}: {', '.join(names[:5])}{more} missing in {base / self.folder}; "
            f"{offer}get the data from {self.source} and put these files there, or set task.root (or "
            f"${ROOT_VARIABLE}) to the folder that contains {self.folder.split('/')[0]!r}"
        )

    def _download(self, base: Path) -> None:
        if not self.torchvision:
            raise ConfigError(
                f"task.download = True is not possible for task = {self.task!r}: get the data from {self.source}"
            )
        try:
            from torchvision import datasets
        except Exception as error:  # a torchvision for another torch fails with RuntimeError
            raise DataError(
                f"task.download = True needs torchvision, which cannot be imported ({error}); install the version "
                f"for your torch, or get the data from {self.source}"
            ) from error
        arguments = {"split": "byclass"} if self.torchvision == "EMNIST" else {}
        try:
            getattr(datasets, self.torchvision)(str(base), download=True, **arguments)
        except Exception as error:  # no network, a full disk, a file with another checksum
            raise DataError(
                f"task = {self.task!r} could not be downloaded: {next(iter(str(error).splitlines()), error)}; "
                f"get the data from {self.source}"
            ) from error


def root_folder(root: str | None, task: str) -> Path:
    """The folder that contains the data sets. Raises ConfigError if none is given or it does not exist."""
    chosen = root or os.environ.get(ROOT_VARIABLE)
    if not chosen:
        raise ConfigError(
            f"task = {task!r} reads files, but no folder is given; set task.root=FOLDER or the environment "
            f"variable {ROOT_VARIABLE}"
        )
    folder = Path(chosen).expanduser().resolve()
    if not folder.is_dir():
        key = "task.root" if root else ROOT_VARIABLE
        raise ConfigError(f"{key} = {chosen!r} is not allowed: it must be an existing folder")
    return folder


def _existing(path: Path) -> Path | None:
    """The path, or that of the packed file."""
    return next((file for file in (path, path.with_name(f"{path.name}.gz")) if file.is_file()), None)


def check_md5(path: Path, published: str, *, unpacked: bool = False) -> None:
    """Raise DataError, naming the file, if it does not have its published checksum.

    `unpacked`: the checksum is that of the content of a file `NAME.gz`.
    """
    if md5(path, unpacked=unpacked) != published:
        raise DataError(
            f"{path} is damaged: it does not have the published MD5 checksum {published}; delete it and get it "
            "again"
        )


def md5(path: Path, *, unpacked: bool = False) -> str:
    """The MD5 checksum of a file, which publishers of data sets use. Raises DataError if it cannot be read."""
    try:
        with opened(path) if unpacked else open(path, "rb") as file:
            return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
