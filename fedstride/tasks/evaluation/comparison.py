"""The figures of models on the same rows of a site, with intervals, and their paired differences.

A figure is the mean over the seeds of training. Its interval is of the rows alone
(`fedstride/figures/intervals.py`): of an AUROC of two classes by DeLong's method, else by a bootstrap of the
site's rows; of too few rows there is none. The spread is the standard deviation over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ...figures import intervals
from ...figures.intervals import NONE, Estimate, Interval
from .per_row import PerRow

AUROC = "auroc"


class ComparedFigure(NamedTuple):
    """A figure or a difference of two, with its interval and its variance by the same method (NaN if unknown).

    A variance of 0 has no interval: the figure is the same whatever rows are drawn. `spread`: over the seeds, NaN
    with one.
    """

    value: float
    interval: Interval
    spread: float
    variance: float


@dataclass(frozen=True)
class At:
    """What was found on the held-out rows of a site, or of all.

    `figures`: by column, and by name of the figure. `differences`: the first column less the other one. `enough`:
    for which figures there are enough rows to say something; the others have no interval. `left_out`: the sites
    that do not count over all.
    """

    site: str
    rows: int
    figures: Mapping[str, Mapping[str, ComparedFigure]]
    differences: Mapping[tuple[str, str], Mapping[str, ComparedFigure]]
    enough: Mapping[str, bool]
    left_out: Sequence[str] = ()


Columns = Mapping[str, Sequence[PerRow]]
"""By column: what each seed's model gives on the same rows."""

Pairs = Sequence[tuple[str, str]]


def at_site(name: str, columns: Columns, pairs: Pairs, seed: int) -> At:
    """On the rows of one site. `seed`: of the bootstrap."""
    first = next(iter(columns.values()))[0]
    comparison = bootstrapped(name, [first.rows], columns, pairs, seed)
    exact = comparison.enough.get(AUROC, False) and _one_column(first)
    return _by_delong(comparison, columns) if exact else comparison


def bootstrapped(name: str, sizes: Sequence[int], columns: Columns, pairs: Pairs, seed: int) -> At:
    """By the bootstrap alone, of the rows of several sites of these sizes, one after the other.

    There are enough rows if one of the sites has them; whoever calls leaves out the others.
    """
    first = next(iter(columns.values()))[0]
    names = first.names
    enough = {figure: intervals.enough(max(sizes), first.kinds(figure)) for figure in names}

    def figures(counts: np.ndarray | None) -> np.ndarray:
        """Of each column the mean over its seeds, one column after the other."""
        return np.concatenate(
            [np.mean([rows.figures(counts) for rows in seeds], axis=0) for seeds in columns.values()]
        )

    values, draws = figures(None), intervals.bootstrap(sizes, figures, seed)
    by_seed = {column: np.stack([rows.figures() for rows in seeds]) for column, seeds in columns.items()}
    place = {(column, figure): i for i, (column, figure) in enumerate((c, f) for c in columns for f in names)}

    def of(column: str) -> dict[str, ComparedFigure]:
        where = {figure: place[column, figure] for figure in names}
        return {
            figure: _compared(
                float(values[at]), draws[:, at], _spread(by_seed[column][:, names.index(figure)]), enough[figure]
            )
            for figure, at in where.items()
        }

    def difference(one: str, other: str) -> dict[str, ComparedFigure]:
        by_figure = {}
        for number, figure in enumerate(names):
            a, b = place[one, figure], place[other, figure]
            spread = _spread(by_seed[one][:, number] - by_seed[other][:, number])
            apart = draws[:, a] - draws[:, b]
            by_figure[figure] = _compared(float(values[a] - values[b]), apart, spread, enough[figure])
        return by_figure

    return At(
        name,
        sum(sizes),
        {column: of(column) for column in columns},
        {pair: difference(*pair) for pair in pairs},
        enough,
    )


def _compared(value: float, draws: np.ndarray, spread: float, enough: bool) -> ComparedFigure:
    if not enough:
        return ComparedFigure(value, NONE, spread, math.nan)
    return ComparedFigure(value, intervals.of_draws(draws), spread, intervals.variance_of_draws(draws))


def _by_delong(comparison: At, columns: Columns) -> At:
    """The same with DeLong's intervals for the AUROC; there are rows of both kinds."""
    positive = next(iter(columns.values()))[0].scores()[1][:, 0]
    scores = np.stack([rows.scores()[0][:, 0] for seeds in columns.values() for rows in seeds])
    areas = intervals.areas(scores, positive)
    weights: dict[str, np.ndarray] = {}
    start = 0
    for column, seeds in columns.items():
        weights[column] = np.zeros(len(scores))
        weights[column][start : start + len(seeds)] = 1.0 / len(seeds)
        start += len(seeds)
    figures = {
        column: {**by_figure, AUROC: _of(by_figure[AUROC], areas.of(weights[column]), intervals.of_area)}
        for column, by_figure in comparison.figures.items()
    }
    differences = {
        (one, other): {
            **by_figure,
            AUROC: _of(by_figure[AUROC], areas.of(weights[one] - weights[other]), intervals.of_difference),
        }
        for (one, other), by_figure in comparison.differences.items()
    }
    return At(comparison.site, comparison.rows, figures, differences, comparison.enough)


def _of(figure: ComparedFigure, estimate: Estimate, interval: Callable[[Estimate], Interval]) -> ComparedFigure:
    return figure._replace(interval=interval(estimate), variance=estimate.variance)


def _one_column(rows: PerRow) -> bool:
    return int(rows.scores()[1].shape[1]) == 1


def _spread(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else math.nan
