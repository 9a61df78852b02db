"""Refuses to measure a model on rows that it was trained on.

Which rows a run held out at a site follows from its configuration, the rows and the site's secret. A run on this
machine has kept a digest of the rows and the secret of each site, so one that has changed since is seen.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from fedstride.errors import ConfigError, DataError, FedstrideError, printable
from fedstride.messages import wire
from fedstride.tasks import own_files
from fedstride.tasks.data_toml.site import check_secret, read_form_of
from fedstride.tasks.evaluation.holdout import hold_out

from ..prediction.model import Model


def check_secrets(files: Iterable[str]) -> None:
    """Raise ConfigError if a site's secret is missing: reading the site's file would make another one."""
    for file in files:
        check_secret(Path(file))


def check_unseen(models: Mapping[str, Model], files: Sequence[str], measured: Sequence[np.ndarray]) -> None:
    """Raise if a model was trained on some of the rows (positions) that are measured at the sites of these files.

    DataError: rows or secret of a site are not those of the run. ConfigError: a model has seen some of the rows.
    """
    for name, model in models.items():
        trained = {place_of(file): number for number, file in enumerate(files_of_run(model))}
        for file, rows in zip(files, measured, strict=True):
            number = trained.get(place_of(file))
            if number is not None:
                _check(name, model, number, file, rows)


def _check(name: str, model: Model, number: int, file: str, measured: np.ndarray) -> None:
    config, site = model.config, own_files.load(file, model.spec)
    content = site.content_as_kept(config.split_seed).hex()
    if any(kept != content for kept in _kept(model.folder, number)):
        raise DataError(
            f"{printable(file)}: the rows are not those with which {name} was trained, or the secret of the "
            "hold-out is another one, so which rows were held out is not known; name the file as the run did, "
            "restore its rows and its secret, or measure all rows with --all-rows"
        )
    seen = hold_out(site.draws(config.split_seed), config.holdout or 0.0, number, config.fold)[0]
    if count := len(np.intersect1d(seen, measured)):
        raise ConfigError(
            f"{printable(file)}: {name} was trained with holdout = {config.holdout or 0:g}, fold = {config.fold} "
            f"and split_seed = {config.split_seed}, and has seen {count} of the {len(measured)} rows that the "
            "first model held out; evaluate the models one by one"
        )


def _kept(folder: Path, number: int) -> list[str]:
    """The digests that the client of a run on this machine has kept of its data."""
    return [path.read_text().strip() for path in (folder / wire.CLIENT_STATES).glob(f"*/data-{number}")]


def files_of_run(model: Model) -> Sequence[str]:
    """The files of the sites on which a model was trained, as its configuration names them; none of other runs."""
    return getattr(model.config.partition, "files", None) or []


def place_of(file: str) -> Path:
    """The resolved place of a site's data; of its own file (*.toml) if that cannot be read."""
    path = Path(file).expanduser()
    with contextlib.suppress(FedstrideError):
        path = read_form_of(path).path
    return path.resolve()
