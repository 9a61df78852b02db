"""The folder of a comparison: a new one, or that of an ended one, which goes on there.

It goes on only with the same command and the same rows: models that were trained on other rows are never measured
with the new ones. Copies of rows never stay in the folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from fedstride.errors import ConfigError, require
from fedstride.files import atomic, bounded_reading
from server_app.records.run_folder import LOCK, lock

from .site_rows import ComparedSite

BEGUN = "begun.json"
ROWS = "rows"
"""The folder with copies of rows: of a division of the task's data, and pooled."""


@contextlib.contextmanager
def opened(
    folder: Path, command: str, named: str, *, resume: bool
) -> Iterator[Callable[[Sequence[ComparedSite]], None]]:
    """Use a folder for the comparison of this command. `named`: the setting that gives it.

    Yields what is to be called with the sites: it keeps what the comparison is begun with, or raises ConfigError
    if their rows are not those with which it was begun. Raises ConfigError for a folder with anything else, and if
    another process compares in it. A new folder in which nothing was made is removed.
    """
    then = _begun(folder, command, named) if resume else None
    new = not folder.exists()
    allowed = "a folder that is new or empty; nothing is overwritten"
    require(resume or new or _is_empty(folder), named, str(folder), allowed)
    with _locked(folder, named):
        shutil.rmtree(folder / ROWS, ignore_errors=True)  # of a process that was killed
        try:
            yield lambda sites: _keep(folder, command, _digest(sites), then, named)
        finally:
            shutil.rmtree(folder / ROWS, ignore_errors=True)
            if not (folder / BEGUN).exists():
                (folder / LOCK).unlink(missing_ok=True)
            if new and _is_empty(folder):
                folder.rmdir()


def _locked(folder: Path, named: str) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return lock(folder)
    except OSError as error:
        raise ConfigError(
            f"{named} = {str(folder)!r} cannot be written ({error.strerror}): choose another {named}"
        ) from error


def _begun(folder: Path, command: str, named: str) -> dict[str, str]:
    """What the comparison in the folder was begun with."""
    try:
        kept = bounded_reading.from_json(bounded_reading.text(folder / BEGUN))
    except (OSError, ValueError):
        kept = None
    if not isinstance(kept, dict) or not {"command", "rows"} <= kept.keys():
        raise ConfigError(f"{named} = {str(folder)!r} is not the folder of a comparison that was begun")
    if kept["command"] != command:
        raise ConfigError(
            f"{named} = {str(folder)!r} has a comparison with another command: go on with {kept['command']}, or "
            f"choose another {named}"
        )
    return kept


def _keep(folder: Path, command: str, rows: str, then: dict[str, str] | None, named: str) -> None:
    if then is None:
        atomic.write_json(folder / BEGUN, {"command": command, "rows": rows})
    elif then["rows"] != rows:
        raise ConfigError(
            f"{named} = {str(folder)!r} has a comparison with other rows: the data have changed since it was "
            f"begun; choose another {named}"
        )


def _digest(sites: Sequence[ComparedSite]) -> str:
    """Of the sites' names and rows, and of the draws that say which of them are held out."""
    digest = hashlib.sha256()
    for site in sites:
        for array in (site.x, site.y, site.draws):
            digest.update(f"{site.name!r} {array.dtype} {array.shape} ".encode())
            digest.update(array.tobytes())
    return digest.hexdigest()


def _is_empty(folder: Path) -> bool:
    return folder.is_dir() and not any(folder.iterdir())
