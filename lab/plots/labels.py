"""Plot of partitions: examples of each class (and group) at each client, as Fedalr's Fig. 1 and FedLWS's Fig. 11.

For a run, the partition is computed again from its configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedstride.tasks import data
from fedstride.tasks.data import Data
from fedstride.tasks.partitions import Parts, partition
from server_app.config.schema import Config
from server_app.figures.style import BARS

from ..results.grouping import summary
from ..results.runs import Run
from .canvas import heat_map, panels, save, whole_numbers
from .examples import LIMIT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BARS_HEIGHT = 0.9


class Map(NamedTuple):
    """One heat map: numbers of examples of shape (rows, clients), its title, and what a row is."""

    counts: np.ndarray
    name: str
    rows: str = "class"


def counts_of(parts: Parts, labels: np.ndarray, classes: int) -> np.ndarray:
    """The number of examples of each class or group (rows) at each client (columns)."""
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts], axis=1)


def maps_of(parts: Parts, source: Data, name: str = "") -> list[Map]:
    """The heat maps of a partition: classes, then groups (numbered in the order of their ids), if there are any.

    A task with neither gives one map with one row, the numbers of examples.
    """
    found = []
    if source.spec.classes:
        found.append(Map(counts_of(parts, source.train_y, source.spec.classes), name))
    if source.groups is not None:
        ids, groups = np.unique(source.groups, return_inverse=True)
        found.append(Map(counts_of(parts, groups, len(ids)), name, "group"))
    return found or [Map(np.array([[len(part) for part in parts]]), name, "all examples")]


def draw_labels(parts: Parts, source: Data, path: Path, title: str) -> None:
    """Plot a partition of the task's training examples into a file.

    `parts`: for each client the positions of its examples. Raises ConfigError if `path` is an existing file that
    is not a plot by fedstride.
    """
    save(figure(maps_of(parts, source), title), path)


def labels(runs: Sequence[Run]) -> Figure:
    """The partitions of these runs, each plotted once. Raises DataError if the data are missing."""
    maps, left_out = maps_of_runs(runs)
    return figure(maps, f"training examples of each class at each client{left_out}")


def maps_of_runs(runs: Sequence[Run]) -> tuple[list[Map], str]:
    """The heat maps of the first partitions, each once, and a note if there are others. Raises DataError."""
    distinct: dict[str, Config] = {}
    for run in runs:
        config = run.config
        distinct.setdefault(repr((config.task, config.partition, config.clients, config.seed)), config)
    maps: list[Map] = []
    for config in list(distinct.values())[:LIMIT]:
        source = data.load(config.task)
        parts = partition(config.partition, source.divisible, config.clients, config.seed)
        maps += maps_of(parts, source, f"{summary(config)}, seed {config.seed}")
    return maps, f"; {LIMIT} of {len(distinct)} partitions" if len(distinct) > LIMIT else ""


def figure(maps: Sequence[Map], title: str) -> Figure:
    """A heat map for each of `maps`, as high as its rows need; above it, bars of the examples per client."""
    clients = max(each.counts.shape[1] for each in maps)
    width = min(14.0, max(5.5, 0.5 * clients + 1.8))
    heights = [min(6.0, max(0.9, 0.26 * len(each.counts))) for each in maps]
    ratios = [height for below in heights for height in (BARS_HEIGHT, below)]
    drawn, grid = panels(
        2 * len(maps),
        1,
        width=width,
        height=max(3.3 * len(maps), sum(ratios)) / (2 * len(maps)),
        title=title,
        height_ratios=ratios,
    )
    for number, each in enumerate(maps):
        _one(grid[2 * number][0], grid[2 * number + 1][0], each)
    return drawn


def _one(above: Axes, below: Axes, shown: Map) -> None:
    rows, clients = shown.counts.shape
    above.bar(range(clients), shown.counts.sum(axis=0), **BARS)
    above.set_ylabel("examples", fontsize=8)
    above.set_title(shown.name, fontsize=8)
    above.set_xlim(-0.5, clients - 0.5)
    above.set_xticks([])
    values = np.where(shown.counts > 0, shown.counts, np.nan).astype(float)
    heat_map(below, values, unit="examples", form="{:.0f}", limits=(0.0, float(shown.counts.max())))
    below.set_xlabel("client")
    below.set_ylabel(shown.rows)
    whole_numbers(below.xaxis, clients)
    whole_numbers(below.yaxis, rows)
