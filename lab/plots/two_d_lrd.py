"""Plot of 2D-LRD: the detector's sum S, the number of decays d, tau, alpha, and the rates of each round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from server_app.figures.curve import points
from server_app.figures.style import against_rounds, style
from server_app.values import numbers

from ..results.runs import Run
from .canvas import heat_map, panels, whole_numbers
from .examples import first_of_each
from .layers import label_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RATES = "two_d_lrd/rates"


def two_d_lrd(runs: Sequence[Run]) -> Figure:
    """A column per run; rows: S and its last term, d and tau, alpha, the rates of the local iterations.

    One run per method and setting: detectors of different seeds fire in different rounds, so a mean over seeds
    has no meaning.
    """
    shown, which = first_of_each(runs)
    figure, grid = panels(
        4,
        len(shown),
        width=5.2,
        height=2.2,
        title=f"2D-LRD: detector and rates; dotted line: d increases\n{which}",
    )
    for column, (run, name) in enumerate(shown):
        detector, counts, alpha, below = (row[column] for row in grid)
        _lines(detector, run, {"S": "S, before the test", "inner": "inner product of two steps"})
        detector.axhline(0.0, color="k", linewidth=0.7)
        detector.set_ylabel("S (norm² of weights)", fontsize=8)
        detector.set_title(name, fontsize=8)
        _lines(counts, run, {"d": "d, decays so far", "tau": "tau, mini-batches per round"})
        counts.set_ylabel("count", fontsize=8)
        counts.set_ylim(bottom=0)
        _lines(alpha, run, {"alpha": "alpha, decay within a round"})
        alpha.set_ylabel("alpha (factor)", fontsize=8)
        alpha.set_ylim(0, 1.08)
        for axes in (detector, counts, alpha):
            for moment in fired(run):
                axes.axvline(moment, color="k", linestyle=":", linewidth=1)
            axes.legend(fontsize=7, handlelength=4, framealpha=0.8, edgecolor="none")
            axes.set_xlabel("")
        _rates(below, run)
    return figure


def _lines(axes: Axes, run: Run, names: dict[str, str]) -> None:
    for number, (symbol, label) in enumerate(names.items()):
        found = points(run.rows, f"two_d_lrd/{symbol}")
        axes.plot(*zip(*found, strict=True), label=label, **style(number, len(found)))
    against_rounds(axes)


def fired(run: Run) -> list[int]:
    """The rounds after which d is higher than before."""
    counts = points(run.rows, "two_d_lrd/d")
    return [after[0] for before, after in zip([(0, 0), *counts], counts, strict=False) if after[1] > before[1]]


def rates(run: Run) -> tuple[list[float], np.ndarray]:
    """The rounds, and the rate of each local iteration (iterations, rounds) as a fraction of the first: or NaN."""
    found = {row["round"]: rates for row in run.rows if (rates := numbers(row, RATES))}
    values = np.full((max(map(len, found.values()), default=0), len(found)), np.nan)
    for column, rates in enumerate(found.values()):
        values[: len(rates), column] = rates
    return list(found), values


def _rates(axes: Axes, run: Run) -> None:
    rounds, values = rates(run)
    heat_map(axes, values, unit="fraction of the first rate", limits=(0.0, 1.0))
    axes.set_ylabel("local iteration j", fontsize=8)
    whole_numbers(axes.yaxis, len(values))
    label_columns(axes, rounds)
