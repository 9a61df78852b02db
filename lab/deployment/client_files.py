"""Saves a partition: for each client a file of examples, as `fedstride.tasks.own_files` reads it, and one about
them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedstride.errors import ConfigError, RunError
from fedstride.tasks.data import Data
from fedstride.tasks.data_toml.dictionary import examples_of
from fedstride.tasks.data_toml.site import SUFFIX
from fedstride.tasks.spec import Spec


def save_partition(folder: Path, source: Data, parts: Sequence[np.ndarray]) -> list[Path]:
    """Write `client-K.npz` for each part, x and y as the task stores them; and `client-K.toml` about it.

    A node with `data="client-K.toml"` and `partition-id=K` trains as client K of the partition does. Raises
    ConfigError, before anything is written, if a file already exists; RunError if the folder cannot be written.
    """
    paths = [folder.expanduser().resolve() / f"client-{client}.npz" for client in range(len(parts))]
    taken = [file for path in paths for file in (path, path.with_suffix(SUFFIX)) if os.path.lexists(file)]
    if taken:
        raise ConfigError(f"{taken[0]} exists and is not replaced: choose another folder")
    try:
        paths[0].parent.mkdir(parents=True, exist_ok=True)
        for path, part in zip(paths, parts, strict=True):
            with path.open("xb") as file:
                np.savez_compressed(file, x=source.train_x[part], y=source.train_y[part])
            with path.with_suffix(SUFFIX).open("x") as file_about:
                file_about.write(about(path.name, source.spec))
    except OSError as error:
        raise RunError(f"{paths[0].parent} cannot be written ({error.strerror})") from error
    return paths


def about(name: str, spec: Spec) -> str:
    """The data file of a site with these examples, whose hold-out is that of a desk."""
    said = "".join(f"{key} = {json.dumps(value)}\n" for key, value in examples_of(spec).items())
    return f"path = {json.dumps(name)}\nsplit_seed = 0\n\n[examples]\n{said}"
