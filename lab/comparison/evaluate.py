"""Measures trained models on rows of sites that are on this machine. Nothing is trained or computed anew."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from pathlib import Path

import numpy as np

from fedstride.errors import ConfigError, DataError
from fedstride.tasks.evaluation.comparison import At
from server_app.config.schema import Config

from ..engine.engine import files_of
from ..prediction.model import Model
from .compare import rows_of
from .comparison_figures import everywhere
from .seen_rows import check_secrets, check_unseen, files_of_run, place_of
from .site_rows import ComparedSite, held_out, sites_of


def measure(models: Mapping[str, Model], config: Config, *, all_rows: bool) -> list[At]:
    """What was found at each site, and over all of them; differences are the first model less each other.

    `config`: with the files of the sites (partition=own), and what is held out there; `all_rows`: measure all.
    Raises ConfigError for models of different forms or figures, a run without files, and if no row is held out,
    DataError for a file that does not exist.
    Rows that a model has seen are not measured as held-out ones (`seen_rows.py`).
    """
    _check_same(models)
    if not getattr(config.partition, "files", None):
        raise ConfigError(
            f"partition = {config.partition.name!r}: the run has no files of sites on this machine; name them: "
            "--files a.csv,b.csv"
        )
    missing = next((file for file in files_of(config) if not Path(file).exists()), None)
    if missing is not None:
        raise DataError(
            f"{missing}, the file of a site, does not exist on this machine: name the files of all sites, "
            "--files a.csv,b.csv"
        )
    files = files_of(config)
    if not all_rows:
        check_secrets(files)
    sites = sites_of(config, next(iter(models.values())).spec)
    held = [_rows(site, config, number, all_rows) for number, site in enumerate(sites)]
    if not all_rows:
        check_unseen(models, files, held)
    first, *others = models
    pairs = [(first, other) for other in others]
    by_site = [
        {name: [rows_of(model, site, rows)] for name, model in models.items()}
        for site, rows in zip(sites, held, strict=True)
    ]
    return everywhere([site.name for site in sites], by_site, pairs)


def trained_on(models: Collection[Model], config: Config) -> str:
    """That all rows are measured of sites on which a model was trained, and how to measure others; empty if not.

    A site is known by the place of its file, as the configuration of the model's run names it.
    """
    files = {place_of(file): file for file in files_of(config)}
    named = {place_of(file) for model in models for file in files_of_run(model)}
    trained = [file for place, file in files.items() if place in named]
    if not trained:
        return ""
    folders = " ".join(shlex.quote(str(model.folder)) for model in models)
    return (
        f"{', '.join(trained)}: a model was trained on rows that are measured here, so figures may be too good; "
        f"for held-out rows alone: fedstride evaluate {folders}"
    )


def _rows(site: ComparedSite, config: Config, number: int, all_rows: bool) -> np.ndarray:
    if all_rows:
        return np.arange(len(site.y))
    if not config.holdout:
        raise ConfigError(
            "holdout = 0: the run holds out no rows of its sites; for rows that no model was trained on, add "
            "--all-rows"
        )
    return held_out(site, config, number)[1]


def _check_same(models: Mapping[str, Model]) -> None:
    (first, one), *others = models.items()
    for name, other in others:
        if one.spec.form != other.spec.form or one.spec.reading != other.spec.reading:
            raise ConfigError(f"{first} and {name} are models of different tasks: evaluate them one by one")
        if one.config.task.metrics != other.config.task.metrics:
            raise ConfigError(
                f"{first} and {name} have different figures ({one.config.task.metrics} and "
                f"{other.config.task.metrics}): evaluate them one by one"
            )
