"""Two models at each site: their figures and the difference of each, in the replies of a run and in its records.

A row has `local/FIGURE` and `against/FIGURE` of the first and the second model, `difference/FIGURE`, the first
one's less the second one's, and `difference/FIGURE/low` and `/high`, the ends of its interval. A site with too few
rows for an interval has no ends. The numbers of all sites together are in `fedstride/figures/differences.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedstride.figures.differences import HIGH, LOW, Difference, over_sites, unpacked
from fedstride.figures.intervals import NONE, Interval
from fedstride.figures.metrics import as_text, difference_as_text, shown
from fedstride.messages import wire
from strategies.replies.cohort import Cohort

from ..records.row_values import number

Row = dict[str, Any]

TOO_FEW = "too few rows"
"""In place of an interval."""

UNMOVED = "no interval"
"""The same if the difference does not move with the rows: both ends are the difference."""

START = f"{wire.DIFFERENCE}/"


@dataclass(frozen=True)
class ModelPair:
    """A figure of both models on the same rows, and their difference with its interval; None if not known."""

    figure: str
    first: float | None
    second: float | None
    difference: float
    interval: Interval

    @property
    def cells(self) -> list[str]:
        """First, second, difference and interval as texts, in the unit of the figure; of percents in points."""
        metric = f"{wire.LOCAL}/{self.figure}"
        difference, low, high = (difference_as_text(metric, value) for value in (self.difference, *self.interval))
        unmoved = self.interval.low == self.interval.high
        ends = UNMOVED if unmoved else f"{low} to {high}" if self.interval.known else TOO_FEW
        return [as_text(metric, self.first), as_text(metric, self.second), difference, ends]

    @property
    def name(self) -> str:
        """The displayed name of the figure."""
        return shown(f"{wire.LOCAL}/{self.figure}").removeprefix(f"{wire.LOCAL} ")


HEAD = ("initial", "against", "initial − against", "interval of 95 %")
"""Above `ModelPair.cells`."""

NOTE = (
    "Both models were measured on the same rows; AUROC of each is from bins of scores, the difference from the "
    "scores themselves. The difference is the first one's figure less the second one's, and clear where its "
    "interval, by the rows alone, does not include 0 (DeLong; for other figures than AUROC of two classes a "
    "bootstrap at the site); one that does not move with the rows has no interval. In the row `all`, the figures "
    "are of all rows together, but the difference is the mean of the sites' differences by rows, of those with "
    "enough rows, with the variance from theirs; so it is not the difference of the two figures beside it, nor "
    "that of `fedstride evaluate`, which ranks all rows together."
)


def pairs_in(row: Mapping[str, Any]) -> dict[str, ModelPair]:
    """The pairs in a row of a site or of a round, by the name of the figure."""
    pairs = {}
    for metric in row:
        figure = metric.removeprefix(START)
        value = number(row, metric)
        if not metric.startswith(START) or "/" in figure or value is None:
            continue
        low, high = (number(row, f"{metric}/{end}") for end in (LOW, HIGH))
        pairs[figure] = ModelPair(
            figure,
            number(row, f"{wire.LOCAL}/{figure}"),
            number(row, f"{wire.AGAINST}/{figure}"),
            value,
            NONE if low is None or high is None else Interval(low, high),
        )
    return pairs


def of_clients(evaluation: Cohort) -> Iterator[tuple[int, Row]]:
    """The ends of the intervals of each client's differences, by client id."""
    for metric, used in _used(evaluation):
        for place, numbers in used.items():
            yield evaluation.replies[place].client_id, _ends(metric, unpacked(numbers))


def of_all(evaluation: Cohort) -> Row:
    """The ends of the intervals of the differences over all clients."""
    row: Row = {}
    weights = evaluation.weights("examples")
    for metric, used in _used(evaluation):
        if metric in evaluation.pooled:
            row |= _ends(metric, over_sites(list(used.values()), [weights[place] for place in used]))
    return row


def _used(evaluation: Cohort) -> Iterator[tuple[str, dict[int, Sequence[float]]]]:
    """For each difference: what counts, by the client's place among the replies."""
    for metric, selection in evaluation.selections.items():
        if metric.startswith(START):
            yield metric, {place: value for place, value in selection.used.items() if isinstance(value, list)}


def _ends(metric: str, difference: Difference) -> Row:
    low, high = difference.interval
    return {f"{metric}/{LOW}": low, f"{metric}/{HIGH}": high} if difference.interval.known else {}
