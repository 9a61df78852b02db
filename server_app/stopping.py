"""Early stopping, and the choice of the best model.

These are pure functions of the rows so far, so a resumed run makes the same decisions as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedstride.metrics import is_better, require_direction


def best_round(rows: Sequence[Mapping[str, Any]], metric: str) -> tuple[int, float] | None:
    """(round, value) of the best value of a metric from round 1 on; the first of equal values. None if no value.

    Raises ConfigError if neither larger nor smaller values of the metric are better.
    """
    require_direction(metric)
    best: tuple[int, float] | None = None
    for row in rows:
        value = row.get(metric)
        if value is None or value != value or row["round"] == 0:
            continue
        if best is None or is_better(metric, value, best[1]):
            best = (int(row["round"]), float(value))
    return best


def reason_to_stop(
    rows: Sequence[Mapping[str, Any]], metric: str, *, target: float | None, patience: int | None
) -> str | None:
    """The reason to stop the run after these rows, or None.

    A run stops when the metric has reached `target`, or after `patience` evaluations without improvement.
    """
    best = best_round(rows, metric)
    if best is None:
        return None
    number, value = best
    if target is not None and not is_better(metric, target, value):
        return f"{metric} reached {value:g} in round {number} (target {target:g})"
    since = sum(1 for row in rows if row["round"] > number and row.get(metric) is not None)
    if patience is not None and since >= patience:
        return f"{metric} was best in round {number} ({value:g}), without improvement in {since} evaluations since"
    return None
