"""Private keys and tokens on this machine, and whether others can use them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from fedstride.files import private_files
from superlink import token

MARK = b"PRIVATE KEY-----"


@dataclass(frozen=True)
class KeyFile:
    """A file with a secret. `fault`: what lets others use it, and what to do; empty if nothing."""

    path: Path
    what: str
    fault: str


def secrets(paths: Iterable[Path]) -> list[KeyFile]:
    """The files with a private key among these, and in folders among these.

    Root may look after the files of others, so to root it is no fault whose they are.
    """
    files = dict.fromkeys(file for path in paths for file in _inside(path))
    return [key_file for file in files if (key_file := _key(file)) is not None]


def tokens(environment: Mapping[str, str] = os.environ) -> list[KeyFile]:
    """The submit tokens that commands of this user would send."""
    folder = token.place("localhost:0", environment).parent
    named = environment.get(token.VARIABLE)
    files = [*_inside(folder), *([Path(named).expanduser()] if named else [])]
    return [KeyFile(file, "token", _fault(file)) for file in files if file.is_file()]


def _inside(path: Path) -> list[Path]:
    """The files in a folder; a file itself; nothing for what cannot be read."""
    if not path.is_dir():
        return [path] if path.is_file() else []
    try:
        return sorted(file for file in path.iterdir() if file.is_file())
    except OSError:
        return []


def _key(path: Path) -> KeyFile | None:
    try:
        with path.open("rb") as file:
            is_key = MARK in file.read(private_files.MOST_BYTES)
    except OSError:  # what this user cannot read is no key of this user
        return None
    return KeyFile(path, "private key", _fault(path)) if is_key else None


def _fault(path: Path) -> str:
    if path.is_symlink():
        return f"is a link to {os.path.realpath(path)}: put the file itself here"
    about = path.stat()
    return private_files.fault(path, about, owners={about.st_uid} if os.geteuid() == 0 else None)
