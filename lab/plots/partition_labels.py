"""Plot of partitions: examples of each class (and group) at each client, as Fedalr's Fig. 1 and FedLWS's Fig. 11.

For a run, the partition is computed again from its configuration.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from fedstride.tasks import data
from fedstride.tasks.data import Data
from fedstride.tasks.partitions.schemes import Parts, partition
from server_app.config.schema import Config

from ..results.grouping import summary
from ..results.run_folders import Run
from .canvas import drawn, save
from .panels import Map, PlotFigure, numbered
from .single_runs import LIMIT


class Counts(NamedTuple):
    """Numbers of examples (rows, clients), of what, and what a row is."""

    counts: np.ndarray
    name: str
    rows: str = "class"


def counts_of(parts: Parts, labels: np.ndarray, classes: int) -> np.ndarray:
    """The number of examples of each class or group (rows) at each client (columns)."""
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts], axis=1)


def maps_of(parts: Parts, source: Data, name: str = "") -> list[Counts]:
    """The heat maps of a partition: classes, then groups (numbered in the order of their ids), if there are any.

    A task with neither gives one map with one row, the numbers of examples.
    """
    maps = []
    if source.spec.classes:
        maps.append(Counts(counts_of(parts, source.train_y, source.spec.classes), name))
    if source.groups is not None:
        ids, groups = np.unique(source.groups, return_inverse=True)
        maps.append(Counts(counts_of(parts, groups, len(ids)), name, "group"))
    return maps or [Counts(np.array([[len(part) for part in parts]]), name, "all examples")]


def draw_labels(parts: Parts, source: Data, path: Path, title: str) -> None:
    """Plot a partition of the task's training examples into a file.

    `parts`: for each client the positions of its examples. Raises ConfigError if `path` is an existing file that
    is not a plot by fedstride.
    """
    save(drawn(figure(maps_of(parts, source), title)), path)


def labels(runs: Sequence[Run], colours: Mapping[str, int]) -> PlotFigure:
    """The partitions of these runs, each plotted once. Raises DataError if the data are missing."""
    maps, left_out = maps_of_runs(runs)
    return figure(maps, f"training examples of each class at each client{left_out}")


def maps_of_runs(runs: Sequence[Run]) -> tuple[list[Counts], str]:
    """The heat maps of the first partitions, each once, and a note if there are others. Raises DataError."""
    distinct: dict[str, Config] = {}
    for run in runs:
        config = run.config
        distinct.setdefault(repr((config.task, config.partition, config.clients, config.seed)), config)
    maps: list[Counts] = []
    for config in list(distinct.values())[:LIMIT]:
        source = data.load(config.task)
        parts = partition(config.partition, source.divisible, config.clients, config.seed)
        maps += maps_of(parts, source, f"{summary(config)}, seed {config.seed}")
    return maps, f"; {LIMIT} of {len(distinct)} partitions" if len(distinct) > LIMIT else ""


def figure(maps: Sequence[Counts], title: str) -> PlotFigure:
    """A map for each of `maps`, and above it bars of the examples per client."""
    clients = max(heat_map.counts.shape[1] for heat_map in maps)
    width = min(14.0, max(5.5, 0.5 * clients + 1.8))
    return PlotFigure(title, [], [[_map(heat_map)] for heat_map in maps], (width, 3.3))


def _map(shown: Counts) -> Map:
    counts = shown.counts.astype(float)
    return Map(
        f"examples of each {shown.rows}" if len(counts) > 1 else "examples",
        shown.name,
        shown.rows,
        np.where(counts > 0, counts, np.nan),
        [f"{client} ({total:.0f} examples)" for client, total in enumerate(counts.sum(axis=0))],
        numbered(range(len(counts))),
        "examples",
        x="client",
        title=shown.name,
        limits=(0.0, float(counts.max())),
        form="{:.0f}",
        totals=True,
    )
