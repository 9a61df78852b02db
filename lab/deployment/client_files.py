"""Saves a partition: one file of examples for each client, in the layout that `fedstride.tasks.own` reads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedstride.errors import ConfigError, RunError
from fedstride.tasks.data import Data


def save_partition(folder: Path, source: Data, parts: Sequence[np.ndarray]) -> list[Path]:
    """Write `client-K.npz` for each part: x and y as the task stores them.

    A node with this file and `partition-id=K` trains as client K of the partition does. Raises ConfigError,
    before anything is written, if a file already exists; RunError if the folder cannot be written.
    """
    paths = [folder.expanduser().resolve() / f"client-{client}.npz" for client in range(len(parts))]
    taken = [path for path in paths if os.path.lexists(path)]
    if taken:
        raise ConfigError(f"{taken[0]} exists and is not replaced: choose another folder")
    try:
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        for path, part in zip(paths, parts, strict=True):
            with path.open("xb") as file:
                np.savez_compressed(file, x=source.train_x[part], y=source.train_y[part])
    except OSError as error:
        raise RunError(f"{paths[0].parent} cannot be written ({error.strerror})") from error
    return paths
