"""When a run may end before its last round, and which of its models is the best.

Pure functions of the rows so far, so that a resumed run decides as an unbroken one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedstride.metrics import is_better, require_direction


def best_round(rows: Sequence[Mapping[str, Any]], metric: str) -> tuple[int, float] | None:
    """(round, value) of the best value of a metric from round 1 on, the first of equals; None if none.

    Raises ConfigError where neither larger nor smaller values of the metric are better.
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
    """Why the run is over after these rows, or None.

    `target`: the metric has reached it; `patience`: so many evaluations since the best one.
    """
    best = best_round(rows, metric)
    if best is None:
        return None
    number, value = best
    if target is not None and not is_better(metric, target, value):
        return f"{metric} reached {value:g} in round {number} (target {target:g})"
    since = sum(1 for row in rows if row["round"] > number and row.get(metric) is not None)
    if patience is not None and since >= patience:
        return f"{metric} was best in round {number} ({value:g}) and not better in {since} evaluations since"
    return None
