"""Plot of partitions: examples of each class at each client, as Fedalr's Fig. 1 and FedLWS's Fig. 11.

For a run, the partition is computed again from its configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fedstride.tasks import data
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


def counts_of(parts: Parts, labels: np.ndarray, classes: int) -> np.ndarray:
    """The number of examples of each class (rows) at each client (columns)."""
    return np.stack([np.bincount(labels[part], minlength=classes) for part in parts], axis=1)


def draw_labels(parts: Parts, labels: np.ndarray, classes: int, path: Path, title: str) -> None:
    """Plot a partition into a file.

    `parts`: for each client the positions of its examples in `labels`. Raises ConfigError if `path` is an
    existing file that is not a plot by fedstride.
    """
    save(figure([(counts_of(parts, labels, classes), "")], title), path)


def labels(runs: Sequence[Run]) -> Figure:
    """The partitions of these runs, each plotted once. Raises DataError if the data are missing."""
    distinct: dict[str, Config] = {}
    for run in runs:
        config = run.config
        distinct.setdefault(repr((config.task, config.partition, config.clients, config.seed)), config)
    maps = []
    for config in list(distinct.values())[:LIMIT]:
        source = data.load(config.task)
        parts = partition(config.partition, source.train_y, config.clients, config.seed)
        maps.append((counts_of(parts, source.train_y, source.classes), f"{summary(config)}, seed {config.seed}"))
    left_out = f"; {LIMIT} of {len(distinct)} partitions" if len(distinct) > LIMIT else ""
    return figure(maps, f"training examples of each class at each client{left_out}")


def figure(maps: Sequence[tuple[np.ndarray, str]], title: str) -> Figure:
    """A heat map (classes, clients) with its name per partition; above it, bars of the examples per client."""
    clients, classes = max(m.shape[1] for m, _ in maps), max(m.shape[0] for m, _ in maps)
    width = min(14.0, max(5.5, 0.5 * clients + 1.8))
    height = min(6.0, max(2.4, 0.26 * classes)) + 0.9
    drawn, grid = panels(
        2 * len(maps), 1, width=width, height=height / 2, title=title, height_ratios=[0.9, height] * len(maps)
    )
    for number, (counts, name) in enumerate(maps):
        _one(grid[2 * number][0], grid[2 * number + 1][0], counts, name)
    return drawn


def _one(above: Axes, below: Axes, counts: np.ndarray, name: str) -> None:
    clients = counts.shape[1]
    above.bar(range(clients), counts.sum(axis=0), **BARS)
    above.set_ylabel("examples", fontsize=8)
    above.set_title(name, fontsize=8)
    above.set_xlim(-0.5, clients - 0.5)
    above.set_xticks([])
    shown = np.where(counts > 0, counts, np.nan).astype(float)
    heat_map(below, shown, unit="examples", form="{:.0f}", limits=(0.0, float(counts.max())))
    below.set_xlabel("client")
    below.set_ylabel("class")
    whole_numbers(below.xaxis, clients)
    whole_numbers(below.yaxis, len(counts))
