"""What `status.json` in a run's folder says: how the run ended, its figures, its time and its versions."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from fedstride.figures.metrics import described
from fedstride.tasks import data

from ..config.schema import Config
from ..records.row_values import Row, plain, total
from ..records.versions import hardware, versions
from ..stopping import chosen_round
from .round_row import OF_EVALUATION

FINAL = ("test/", *OF_EVALUATION)
"""The beginnings of the names of metrics in `final`."""

PHASES = ("train", "aggregate", "evaluate")


def status(
    config: Config, rows: Sequence[Row], state: str, reason: str | None, *, started: float, trained_on: int
) -> dict[str, Any]:
    """The content of the file. `started`: in seconds since 1970. `trained_on`: the clients' examples, 0: unknown.

    `state`: running, completed, failed, interrupted or terminated; `reason`: why it ended so.
    """
    last = rows[-1] if rows else {}
    seconds = {phase: sum(total(row, [f"seconds/{phase}"]) for row in rows) for phase in PHASES}
    content = {
        "state": state,
        "reason": reason,
        "rounds": int(last["round"]) if last else 0,
        "final": {key: value for key, value in last.items() if key.startswith(FINAL)},
        "best": _best(config.headline, rows),
        "seed": config.seed,
        "subset": data.load(config.task).subset or None,  # of the published data, in words
        "data": None if state == "running" else data.digest(config.task),  # a start would wait for it
        "rows": trained_on or None,
        "figures": described(config.task.metrics),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(started)),
        "seconds": {"total": time.time() - started, **seconds},
        "versions": versions(),
        "hardware": hardware(),
    }
    return dict(plain(content))


def _best(headline: str, rows: Sequence[Row]) -> dict[str, Any] | None:
    """The round's figure, also if the median of clients decided."""
    chosen = chosen_round(rows, headline)
    if chosen is None:
        return None
    value = next(row.get(headline) for row in rows if row["round"] == chosen[0])
    return {headline: value, "round": chosen[0]}
