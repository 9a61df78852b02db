"""Early stopping, and the choice of the best model.

These are pure functions of the rows so far, so a resumed run makes the same decisions as an uninterrupted one.

If clients report the metric that decides, no client decides alone. The value that decides is then not the mean,
which a client moves by its share, but the median over clients: the value that more than half of those who reported
it reached. The round counts only if enough clients reported it (`best_quorum`). `decision_figure` in
`reports/round_row.py` adds this value to the round's row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedstride.figures.metrics import AGREED, is_better, require_direction

from .records.row_values import number


def quorum_of(best_quorum: int | None, asked: int, clients: int) -> int:
    """How many of the `asked` clients of a round must report the metric that decides.

    By default more than half of them and at least two. A federation that has only one client trusts it.
    """
    return max(min(2, clients), asked // 2 + 1) if best_quorum is None else best_quorum


@dataclass(frozen=True)
class Decision:
    """What the rows so far decide about a metric: the round of the best model, and the evaluations since.

    Rows are added one by one: a late round of a long run takes no longer than its first.
    Raises ConfigError if neither larger nor smaller values of the metric are better.
    """

    metric: str
    best: tuple[int, float] | None = None  # round and value; the first of equal values, and never round 0
    since: int = 0  # evaluations after the best round

    def __post_init__(self) -> None:
        require_direction(self.metric)

    def after(self, *rows: Mapping[str, Any]) -> Decision:
        """The decision with more rows."""
        decision = self
        for row in rows:
            decision = decision._after_one(deciding_row(row, self.metric))
        return decision

    def _after_one(self, row: Mapping[str, Any]) -> Decision:
        if self.metric not in row:
            return self
        value = row[self.metric]
        if value is None or row["round"] == 0 or (self.best and not is_better(self.metric, value, self.best[1])):
            return replace(self, since=self.since + 1)
        return replace(self, best=(int(row["round"]), float(value)), since=0)

    def reason_to_stop(self, *, target: float | None, patience: int | None) -> str | None:
        """The reason to stop the run after these rows, or None.

        A run stops when the metric has reached `target`, or after `patience` evaluations without improvement.
        """
        if self.best is None:
            return None
        best, value = self.best
        if target is not None and not is_better(self.metric, target, value):
            return f"{self.metric} reached {value:g} in round {best} (target {target:g})"
        if patience is not None and self.since >= patience:
            since = f"without improvement in {self.since} evaluations since"
            return f"{self.metric} was best in round {best} ({value:g}), {since}"
        return None


def deciding_row(row: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """The row's round and its value of the metric that decides.

    The key of the metric is missing if the round was not evaluated, or too few clients reported it.
    The value is None if it is not a finite number.
    """
    of_clients = AGREED + metric in row
    value = number(row, AGREED + metric if of_clients else metric)
    decides = value is not None if of_clients else metric in row
    return {"round": row["round"], metric: value} if decides else {"round": row["round"]}


def chosen_round(rows: Sequence[Mapping[str, Any]], metric: str) -> tuple[int, float] | None:
    """The round of the best model, and its value of the metric that decides; None if no row has one."""
    return Decision(metric).after(*rows).best
