"""The folder of a run: where it lies, what it is called, who holds it.

Knows names, locks and atomic writes; does not know what is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
from pathlib import Path
from typing import IO

from fedstride.errors import ConfigError, RunError

from .config.schema import Config, label


def runs_dir(config: Config) -> Path:
    """Where runs go: `out`, else FEDSTRIDE_RUNS, else `runs` below the working directory; absolute."""
    return Path(config.out or os.environ.get("FEDSTRIDE_RUNS") or "runs").expanduser().resolve()


def default_name(config: Config) -> str:
    """A run's name from its choices, as in `quickstart-fednnnn-sgd-seed1`."""
    objective = [] if config.objective.name == "plain" else [config.objective.name]
    privacy = [] if config.privacy.name == "none" else [config.privacy.name]
    choices = [config.experiment, label(config), config.client.name, *objective, *privacy]
    return "-".join([*choices, f"seed{config.seed}"])


def new_folder(config: Config) -> Path:
    """A folder for a new run; a default name that is taken gets a number.

    Raises ConfigError where a name that was asked for is taken, RunError where it cannot be made.
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
                raise ConfigError(
                    f"name = {name!r} is taken: {folder} exists and is not overwritten; choose another name"
                ) from None
        except OSError as error:
            raise RunError(
                f"the run's folder {folder} cannot be made ({error.strerror}); choose another with out=FOLDER"
            ) from error
    raise RunError(f"no free name for {name!r} in {root}")


def lock(folder: Path) -> IO[str]:
    """Held while the run goes on; the system releases it when the process ends, however it ends."""
    # Opened for reading only: a descriptor that writes would keep the disk from becoming read-only.
    file = os.fdopen(os.open(folder / ".lock", os.O_RDONLY | os.O_CREAT, 0o666))
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        raise ConfigError(f"{folder} belongs to a run that still goes on: wait for its end, or stop it") from error
    return file


def write(path: Path, content: bytes) -> None:
    """Write a file so that it is there whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_bytes(content)
    temporary.replace(path)


def sweep(folder: Path) -> None:
    """Remove the half-written files and folders of writers that were killed; only for who holds the lock.

    They are called `.NAME.PID`. One that cannot be removed does no harm.
    """
    for left in folder.glob(".*.[0-9]*"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            with contextlib.suppress(OSError):
                left.unlink()
