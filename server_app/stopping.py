"""Early stopping, and the choice of the best model.

These are pure functions of the rows so far, so a resumed run makes the same decisions as an uninterrupted one.

If clients report the metric that decides, no client decides alone. The value that decides is then not the mean,
which a client moves by its share, but the median over clients: the value that more than half of those who reported
it reached. The round counts only if enough clients reported it (`best_quorum`). `decision_figure` in
`reports/round_row.py` adds this value to the round's row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedstride.figures.metrics import AGREED, is_better, require_direction

from .records.row_values import number


def quorum_of(best_quorum: int | None, asked: int, clients: int) -> int:
    """How many of the `asked` clients of a round must report the metric that decides.

    By default more than half of them and at least two. A federation that has only one client trusts it.
    """
    return max(min(2, clients), asked // 2 + 1) if best_quorum is None else best_quorum


def deciding_rows(rows: Sequence[Mapping[str, Any]], metric: str) -> list[dict[str, Any]]:
    """The rows with their round and the value of the metric that decides, if there is one."""
    short_rows: list[dict[str, Any]] = []
    for row in rows:
        deciding: dict[str, Any] = {"round": row["round"]}
        if AGREED + metric in row:  # the metric is from clients
            if (agreed := number(row, AGREED + metric)) is not None:
                deciding[metric] = agreed
        elif metric in row:
            deciding[metric] = number(row, metric)
        short_rows.append(deciding)
    return short_rows


def best_round(rows: Sequence[Mapping[str, Any]], metric: str) -> tuple[int, float] | None:
    """(round, value) of the best value of a metric from round 1 on; the first of equal values. None if no value.

    Raises ConfigError if neither larger nor smaller values of the metric are better.
    """
    require_direction(metric)
    best: tuple[int, float] | None = None
    for row in rows:
        value = number(row, metric)
        if value is None or row["round"] == 0:
            continue
        if best is None or is_better(metric, value, best[1]):
            best = (int(row["round"]), float(value))
    return best


def chosen_round(rows: Sequence[Mapping[str, Any]], metric: str) -> tuple[int, float] | None:
    """The round of the best model, and its value of the metric that decides; see `best_round`."""
    return best_round(deciding_rows(rows, metric), metric)


def reason_to_stop(
    rows: Sequence[Mapping[str, Any]], metric: str, *, target: float | None, patience: int | None
) -> str | None:
    """The reason to stop the run after these rows, or None.

    A run stops when the metric has reached `target`, or after `patience` evaluations without improvement.
    """
    rows = deciding_rows(rows, metric)
    best = best_round(rows, metric)
    if best is None:
        return None
    number, value = best
    if target is not None and not is_better(metric, target, value):
        return f"{metric} reached {value:g} in round {number} (target {target:g})"
    since = sum(1 for row in rows if row["round"] > number and metric in row)
    if patience is not None and since >= patience:
        return f"{metric} was best in round {number} ({value:g}), without improvement in {since} evaluations since"
    return None
