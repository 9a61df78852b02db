"""The folder of a run: its location and name, its lock, and what may be in it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import itertools
import os
import shutil
import stat
import struct
import time
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from fedstride.errors import ConfigError, RunError
from fedstride.files.bounded_reading import FLAGS

from ..config.checks import MAX_FOLDER_NAME
from ..config.keys import label
from ..config.schema import Config
from .completed_run import never_began


def runs_dir(config: Config) -> Path:
    """The folder of all runs: `out`, else FEDSTRIDE_RUNS, else `runs` in the working directory; absolute."""
    return Path(os.path.expanduser(config.out or os.environ.get("FEDSTRIDE_RUNS") or "runs")).resolve()


LOCK = ".lock"
"""In the folder of a run: the file that the writing process has locked."""

NAMED = ("task", "partition", "strategy", "client", "objective", "calibration", "privacy", "attack")
"""The choices in the default name of a run, in this order."""


def default_name(config: Config) -> str:
    """The default name of a run, made from its choices, as in `mnist5k-dirichlet-fednnnn-sgd-seed1`."""
    names = [label(config) if group == "strategy" else getattr(config, group).name for group in NAMED]
    return folder_name(
        "-".join([*(name for name in names if name not in ("plain", "none")), f"seed{config.seed}"])
    )


def folder_name(text: str) -> str:
    """The text if it is a folder's name, else the nearest one that is; a long text ends with a part of its hash.

    Different texts of more than `MAX_FOLDER_NAME` bytes have different names.
    """
    kept = "".join(char if char.isprintable() and char not in "/\\" else "_" for char in text)
    kept = kept.encode(errors="replace").decode().strip()
    kept = kept if kept and kept[0] not in ".-~" else f"_{kept}"
    if len(kept.encode()) <= MAX_FOLDER_NAME:
        return kept
    end = f"-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:8]}"
    return kept.encode()[: MAX_FOLDER_NAME - len(end)].decode(errors="ignore") + end


def check_name(config: Config) -> None:
    """Raises ConfigError if a folder with the name that the user gave to a new run exists already."""
    if config.name is not None and config.resume is None and (folder := runs_dir(config) / config.name).exists():
        raise _used(config.name, folder)


def _used(name: str, folder: Path) -> ConfigError:
    begun = ", or remove the folder: its run has ended before the first round" if never_began(folder) else ""
    return ConfigError(
        f"name = {name!r} is already used: {folder} exists and is not overwritten; choose another name{begun}"
    )


def new_folder(config: Config) -> Path:
    """Create the folder of a new run. If the default name exists already, a number is appended.

    Raises ConfigError if a folder with the name that the user gave exists already, RunError if the folder cannot
    be created.
    """
    root = runs_dir(config)
    name = config.name or default_name(config)
    for number in range(1, 100_000):
        folder = root / (name if number == 1 else f"{name}-{number}")
        try:
            folder.mkdir(parents=True, mode=0o777 if config.privacy.name == "none" else 0o700)
            return folder
        except FileExistsError:
            if config.name is not None:
                raise _used(name, folder) from None
        except OSError as error:
            raise RunError(
                f"the run's folder {folder} cannot be created ({error.strerror}); choose another with out=FOLDER"
            ) from error
    raise RunError(f"{root} contains too many runs with the name {name!r}; choose another with name=NAME")


def lock(folder: Path) -> IO[str]:
    """Lock the run's folder for this process. The operating system releases the lock when the process ends.

    Raises ConfigError if another process has the lock, OSError if the folder cannot be written.
    """
    # Opened read-only: the disk could not be remounted read-only while a file is open for writing.
    file = os.fdopen(os.open(folder / LOCK, FLAGS | os.O_CREAT | os.O_NOFOLLOW, 0o666))
    try:
        _lock_alone(file)
    except BlockingIOError as error:
        file.close()
        raise ConfigError(f"the run in {folder} is still in progress; wait until it ends, or stop it") from error
    except OSError:
        file.close()
        raise
    with contextlib.suppress(OSError):  # a second lock, of which the system says who has it
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    _OWN[:] = [*(reference for reference in _OWN if reference() is not None), weakref.ref(file)]
    return file


def _lock_alone(file: IO[str]) -> None:
    """Lock the file exclusively. Tried for a tenth of a second: `is_locked` shares the lock for a moment."""
    for _ in range(10):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.01)
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


_OWN: list[weakref.ref[IO[str]]] = []
"""The locks of this process. To close another descriptor of such a file would give up the second lock."""


def is_locked(folder: Path) -> bool:
    """Whether a process of this machine writes to the run's folder now."""
    try:
        if _is_own(folder):
            return True
        with os.fdopen(os.open(folder / LOCK, FLAGS | os.O_NOFOLLOW)) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # released with the file, at once
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def owner_of_lock(folder: Path) -> int | None:
    """The process that writes to the run's folder; None if none does, or none that is visible from here.

    The system is asked, which knows each process by its number here, also one in a container. Linux.
    """
    try:
        if _is_own(folder):
            return os.getpid()
        with os.fdopen(os.open(folder / LOCK, FLAGS | os.O_NOFOLLOW)) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_nlink != 1:  # another program's
                return None
            asked = struct.pack(_RECORD, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            kind, _, _, _, process = struct.unpack(_RECORD, fcntl.fcntl(file, fcntl.F_GETLK, asked))
    except OSError:
        return None
    return process if kind != fcntl.F_UNLCK and process > 0 else None


_RECORD = "hhqqi4x"
"""`struct flock` of Linux on machines of 64 bits: kind, whence, start, length, process."""


def _is_own(folder: Path) -> bool:
    """Whether this process has the lock. Raises OSError without a lock file."""
    about = (folder / LOCK).lstat()
    open_here = [file for reference in _OWN if (file := reference()) is not None and not file.closed]
    return any(os.path.samestat(os.fstat(file.fileno()), about) for file in open_here)


def check_no_links(folder: Path, below: Iterable[str]) -> None:
    """Raise ConfigError if something in this run's folder is a link, or in one of these folders of it.

    A run writes there, and whoever made the link would choose what is overwritten.
    """
    inside = (Path(path) for name in below for path, _, _ in os.walk(folder / name))
    for place in (folder, *inside):
        try:
            with os.scandir(place) as entries:
                link = next((entry.path for entry in entries if entry.is_symlink()), None)
        except OSError:
            continue  # whoever reads or writes it says why that is not possible
        if link is not None:
            raise ConfigError(
                f"{link} is a link, and a run writes nothing to where a link leads: move it away, or put the "
                "files themselves there"
            )


def free(path: Path) -> Path:
    """The path, with `-2`, `-3` ... appended to its name if it exists already."""
    names = itertools.chain([path.name], (f"{path.name}-{number}" for number in itertools.count(2)))
    return next(candidate for name in names if not (candidate := path.with_name(name)).exists())


def remove_temporary_files(folder: Path) -> None:
    """Remove incomplete files and folders, named `.NAME.NUMBER`, that a killed process left. Needs the lock.

    Errors are ignored, because these files do no harm.
    """
    for path in folder.glob(".*.[0-9]*"):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                path.unlink()
