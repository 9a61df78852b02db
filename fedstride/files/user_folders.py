"""Where a user's own files are, also for a user without a home folder: a container's, cron's or a service's.

Python's `expanduser` takes the home folder from HOME, else from the user's entry in /etc/passwd. It raises a
RuntimeError if there is neither. Packages that are used here call it too, so a command catches that error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from ..errors import ConfigError

FLOWER = "FLWR_HOME"


def settle(environment: MutableMapping[str, str] = os.environ) -> None:
    """Remove a HOME that is no absolute path: it would be another folder in each process started elsewhere.

    The home folder is then that of the user's entry in /etc/passwd.
    """
    if not os.path.isabs(environment.get("HOME", "/")):
        del environment["HOME"]


def flower(environment: Mapping[str, str] = os.environ) -> Path:
    """The folder of Flower's files and of a node's own: FLWR_HOME, else `.flwr` in the home folder.

    Raises ConfigError if FLWR_HOME is not set, and the home folder is not known.
    """
    return expanded(environment.get(FLOWER) or "~/.flwr").absolute()


def expanded(path: str | Path) -> Path:
    """The path with the folder for which `~` or `~NAME` stands. Raises ConfigError if that is not known."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise ConfigError(_unknown_home()) from error


def fault(error: Exception) -> str | None:
    """What to do about this error of Python for a home folder that is not known, or if no folder for temporary
    files can be written; None for any other error.
    """
    if isinstance(error, RuntimeError) and "home directory" in str(error):
        return _unknown_home()
    if isinstance(error, FileNotFoundError) and "temporary directory" in str(error):
        return "no folder for temporary files can be written: set TMPDIR to one that this user may write"
    return None


def _unknown_home() -> str:
    if os.path.isabs(os.path.expanduser("~")):
        return "a path begins with ~ and the name of a user whom this machine does not know: write it in full"
    return (
        f"the home folder of user {os.getuid()} is not known (no HOME that is an absolute path, and no entry in "
        f"/etc/passwd): set HOME to a folder that this user may write, or {FLOWER}, FEDSTRIDE_CACHE and "
        "FEDSTRIDE_STATE"
    )
