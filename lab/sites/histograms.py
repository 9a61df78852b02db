"""What two sites say of one column, brought to the same bins.

Sites make their bins alone (`fedstride/tasks/statistics/round_bins.py`), so two of them have some edges in common
and others not. With edges in common, their counts between these are exact, and are compared. Without any, each
edge e of one of them is a limit: of the values of a site, at least those of the bins below e are below it, and
at most those of the bins that begin below e. Of two sites whose shares of values below e must differ, the two
numbers that differ least are compared, at the edge where they differ most. The p-value is multiplied by the
number of edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np

from fedstride.tasks.statistics.description import Told

from .chi_square import homogeneity


@dataclass(frozen=True)
class Histogram:
    """The values of a column at a site, or at several: counts in the bins between edges, or of categories.

    `edges`: None for categories; the last of their counts is that of all that are not said.
    """

    counts: np.ndarray
    edges: tuple[float, ...] | None

    @property
    def total(self) -> int:
        """The number of values."""
        return int(self.counts.sum())


def histogram_of(told: Told, rows: int, categories: int) -> Histogram | None:
    """The values of a column, as a site of so many rows said them; None if it said none."""
    if not told.counts:
        return None
    if not categories:
        return Histogram(np.array(told.counts, np.int64), told.edges)
    values = rows - max(told.missing, 0)
    said = [max(count, 0) for count in told.counts]
    return Histogram(np.array([*said, values - sum(said)], np.int64), None)


def hidden(told: Sequence[Told]) -> np.ndarray:
    """Which categories one of these sites did not say, bool (categories,)."""
    return cast(np.ndarray, np.any([np.array(answer.counts) < 0 for answer in told], axis=0))


def without(histogram: Histogram, categories: np.ndarray) -> Histogram:
    """The same, with these categories among those that are not said."""
    counts = histogram.counts.copy()
    counts[-1] += counts[:-1][categories].sum()
    return Histogram(np.append(counts[:-1][~categories], counts[-1]), None)


def in_common(histograms: Sequence[Histogram]) -> list[np.ndarray]:
    """The counts of each in the bins that all have."""
    if any(histogram.edges is None for histogram in histograms):
        return [histogram.counts for histogram in histograms]
    edges = sorted(set.intersection(*(set(histogram.edges or ()) for histogram in histograms)))
    return [_between(histogram, edges) for histogram in histograms]


def _between(histogram: Histogram, edges: Sequence[float]) -> np.ndarray:
    ends = [(histogram.edges or ()).index(edge) + 1 for edge in edges]
    return np.array([part.sum() for part in np.split(histogram.counts, ends)], np.int64)


def difference(one: Histogram, others: Sequence[Histogram]) -> float | None:
    """The p-value of the test whether this site's values are like those of the others; None: not to be said."""
    first, *rest = in_common([one, *others])
    if len(first) > 1:
        return homogeneity(np.stack([first, np.sum(rest, axis=0)]))
    if one.edges is None:
        return None
    return _by_limits(one, others)


def _by_limits(one: Histogram, others: Sequence[Histogram]) -> float | None:
    edges = sorted({edge for histogram in (one, *others) for edge in histogram.edges or ()})
    p_values = []
    for edge in edges:
        least, most = _limits(one, edge)
        pairs = [_limits(other, edge) for other in others]
        their_least, their_most = (sum(limits) for limits in zip(*pairs, strict=True))
        total = sum(other.total for other in others)
        if least * total > their_most * one.total:
            below = least, their_most
        elif most * total < their_least * one.total:
            below = most, their_least
        else:
            p_values.append(1.0)
            continue
        table = np.array([[below[0], one.total - below[0]], [below[1], total - below[1]]])
        p_values.append(1.0 if (p := homogeneity(table)) is None else p)
    return min(1.0, min(p_values) * len(p_values)) if p_values else None


def _limits(histogram: Histogram, edge: float) -> tuple[int, int]:
    """How many values are below an edge, at least and at most."""
    upto = np.concatenate([[0], np.cumsum(histogram.counts)])
    edges = histogram.edges or ()
    end_by_it = int(np.searchsorted(edges, edge, side="right"))
    begin_below = int(np.searchsorted(edges, edge, side="left")) + 1
    return int(upto[end_by_it]), int(upto[begin_below])
