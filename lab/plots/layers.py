"""A metric of every layer over rounds: lines for a few layers, a heat map for many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from server_app.figures.style import LONGEST_LABEL, STYLES, against_rounds, shown

from ..results.runs import Run
from .canvas import Band, heat_map, line, over_rounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def layers_of(runs: Sequence[Run], prefix: str) -> list[str]:
    """The layers that have the metric `prefix/<layer>`, in the network's order."""
    keys = (key for run in runs for row in run.rows for key in row if key.startswith(f"{prefix}/"))
    return list(dict.fromkeys(key.removeprefix(f"{prefix}/") for key in keys))


def by_layer(axes: Axes, runs: Sequence[Run], prefix: str, name: str) -> None:
    """Draw the mean of `prefix/<layer>` over these runs (seeds); `name`: label of the quantity's axis."""
    layers = layers_of(runs, prefix)
    bands = {layer: over_rounds([run.rows for run in runs], f"{prefix}/{layer}") for layer in layers}
    against_rounds(axes)
    if len(layers) <= len(STYLES):
        for number, (layer, band) in enumerate(bands.items()):
            line(axes, band, layer, number)
        axes.set_ylabel(name)
        axes.ticklabel_format(axis="y", useOffset=False)
        return
    found, rounds, values = matrix(bands)
    heat_map(axes, values, unit=name, form="{:.3g}")
    axes.grid(visible=False)
    axes.set_yticks(
        range(len(found)), [shown(name, LONGEST_LABEL) for name in found], fontsize=min(7.0, 150 / len(found))
    )
    label_columns(axes, rounds)


def matrix(bands: Mapping[str, Band | None]) -> tuple[list[str], list[float], np.ndarray]:
    """The names that have values, the rounds, and the means (names, rounds), NaN where there is none."""
    found = {name: band for name, band in bands.items() if band is not None}
    rounds = sorted({x for band in found.values() for x in band.x})
    values = np.full((len(found), len(rounds)), np.nan)
    for row, band in enumerate(found.values()):
        values[row, [rounds.index(x) for x in band.x]] = band.mean
    return list(found), rounds, values


def label_columns(axes: Axes, rounds: Sequence[float], limit: int = 8) -> None:
    """Label columns of a heat map with round numbers, at most `limit`; the step is one of 1, 2, 5, 10, ..."""
    steps = (digit * 10**power for power in range(7) for digit in (1, 2, 5))
    step = next(step for step in steps if len(_multiples(rounds, step)) <= limit)
    axes.set_xticks(_multiples(rounds, step), [f"{rounds[place]:g}" for place in _multiples(rounds, step)])
    axes.set_xlabel("round")


def _multiples(rounds: Sequence[float], step: int) -> list[int]:
    return [place for place, number in enumerate(rounds) if number % step == 0]
