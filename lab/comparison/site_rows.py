"""The sites of a comparison: the rows of each, and which of them no model was trained on.

A site is a client of the run: one with its own data (partition=own), or a part of the task's data, which is
written as such a file. So the division, and with it the held-out rows, are the same in every run, whatever its
seed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from client_app.message_settings import members
from fedstride.errors import DataError, require
from fedstride.parts import Choice
from fedstride.tasks import data, own_files
from fedstride.tasks.evaluation.holdout import hold_out
from fedstride.tasks.registry import PARTITIONS
from fedstride.tasks.spec import Spec
from server_app.config.schema import Config

from ..engine.engine import files_of
from ..engine.local_grid import names_of


@dataclass(frozen=True)
class ComparedSite:
    """A site's rows in the stored form of the task; `draws`: those of the hold-out, uint64 (rows,)."""

    name: str
    x: np.ndarray
    y: np.ndarray
    draws: np.ndarray


@dataclass(frozen=True)
class SiteSplit:
    """What is trained on and what is measured: positions of rows, for each site.

    `files`: of the sites, for a federation that holds out the share `holdout` of them. `pooled`: the file with the
    training rows of all.
    """

    files: list[str]
    holdout: float
    pooled: str
    trained: list[np.ndarray]
    held: list[np.ndarray]


def with_files(config: Config, folder: Path) -> Config:
    """The same run with partition=own: the task's data are divided once, and written into `folder`."""
    if config.partition.name == "own":
        return replace(config, partition=of_files(files_of(config)))
    source = data.load(config.task)
    parts = members(config.task, config.partition, config.clients, config.seed)
    files = [folder / f"{number}.npz" for number in range(len(parts))]
    for path, part in zip(files, parts, strict=True):
        chosen = np.sort(part)
        np.savez(path, x=source.train_x[chosen], y=source.train_y[chosen])
    return replace(config, partition=of_files(map(str, files)))


def of_files(files: Iterable[str]) -> Choice:
    """The partition of clients with these files."""
    settings: dict[str, Any] = {"files": list(files)}
    return PARTITIONS.config("own")(**settings)


def sites_of(config: Config, spec: Spec) -> list[ComparedSite]:
    """The sites of a run with files. Raises the errors of `own_files.load`."""
    files = files_of(config)
    sites = []
    for name, path in zip(names_of(files), files, strict=True):
        rows = own_files.load(path, spec)
        sites.append(ComparedSite(name, rows.x, rows.y, rows.draws(config.split_seed)))
    return sites


def as_held_out(config: Config, sites: Sequence[ComparedSite], folder: Path) -> SiteSplit:
    """What the run itself holds out at each site. Raises ConfigError if that is nothing."""
    share = config.holdout
    require(bool(share), "holdout", share, "above 0: models are compared on rows that none was trained on")
    both = [held_out(site, config, number) for number, site in enumerate(sites)]
    trained, held = [kept for kept, _ in both], [held_out for _, held_out in both]
    pooled = _written(folder / "pooled.npz", list(zip(sites, trained, strict=True)))
    return SiteSplit(files_of(config), share or 0.0, pooled, trained, held)


def held_out(site: ComparedSite, config: Config, number: int) -> tuple[np.ndarray, np.ndarray]:
    """What this client of a run trains on and what it holds out, as positions of rows.

    Raises DataError, with the site's name, if its rows do not give both.
    """
    try:
        return hold_out(site.draws, config.holdout or 0.0, number, config.fold)
    except DataError:
        share = f"holdout = {config.holdout:g}" + (f", fold = {config.fold}," if config.fold else "")
        raise DataError(
            f"site {site.name} has {len(site.draws)} rows, which do not give {share} one to train on and a "
            "different one to measure on: leave out the site"
        ) from None


def folds(sites: Sequence[ComparedSite], count: int, folder: Path) -> list[SiteSplit]:
    """Each row is held out in one of `count` splits: fold k holds out draws from k / count to (k + 1) / count.

    Rows with one id, and equal rows, stay together. Raises DataError if a site has no rows to train on or to
    measure on in one of them.
    """
    return [_fold(sites, number, count, folder) for number in range(count)]


def _fold(sites: Sequence[ComparedSite], number: int, count: int, folder: Path) -> SiteSplit:
    place = folder / f"fold-{number + 1}"
    place.mkdir()
    trained, held, files = [], [], []
    for at, site in enumerate(sites):
        # Of 64 bits the upper 53: a float64 has them all, and the intervals of the folds are the same everywhere.
        inside = (
            np.minimum((site.draws >> np.uint64(11)) * (count / 2.0**53), count - 1).astype(np.int64) == number
        )
        if inside.all() or not inside.any():
            raise DataError(
                f"site {site.name} has {len(inside)} rows, which do not give each of {count} folds one to train "
                "on and one to measure on: use fewer --folds, or leave out the site"
            )
        trained.append(np.flatnonzero(~inside))
        held.append(np.flatnonzero(inside))
        files.append(_written(place / f"{at}.npz", [(site, trained[-1])]))
    pooled = _written(place / "pooled.npz", list(zip(sites, trained, strict=True)))
    return SiteSplit(files, 0.0, pooled, trained, held)


def _written(path: Path, parts: Sequence[tuple[ComparedSite, np.ndarray]]) -> str:
    """Write these rows of these sites into one file; its path."""
    np.savez(
        path,
        x=np.concatenate([site.x[rows] for site, rows in parts]),
        y=np.concatenate([site.y[rows] for site, rows in parts]),
    )
    return str(path)
