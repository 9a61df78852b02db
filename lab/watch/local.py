"""A run on this machine, as its folder shows it now."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from server_app.progress import ANSWERED, FILE, STATES, WAITING

from ..results.runs import Run, load
from .sight import Sight


def look(folder: Path) -> Sight:
    """What the folder says. Raises ConfigError if it cannot be read."""
    run = load(folder)
    done = int(run.rows[-1]["round"]) if run.rows else 0
    metric = run.headline
    number, clients = _in_progress(folder) if run.state == "running" else (0, {})
    over = {
        str(row["client"]): row for row in run.clients.rows if row["round"] == done and row["client"] is not None
    }
    if number <= done:  # no round is in progress
        number, clients = done, {**clients, **{label: _state(row) for label, row in over.items()}}
    return Sight(
        name=run.folder.name,
        state=run.state,
        reason=_reason(run),
        round=number,
        rounds=run.config.rounds,
        metric=metric,
        points={int(row["round"]): row[metric] for row in run.rows if row.get(metric) is not None},
        clients=clients,
        reasons={label: str(row["reason"]) for label, row in over.items() if row.get("reason")},
    )


def _in_progress(folder: Path) -> tuple[int, dict[str, str]]:
    """The round and the states in the file of the round in progress; none if there is no such file."""
    try:
        found = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return int(found["round"]), {str(label): str(state) for label, state in found["clients"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return 0, {}


def _state(row: Mapping[str, Any]) -> str:
    return STATES.get(str(row.get("status")), WAITING if row.get("status") is None else ANSWERED)


def _reason(run: Run) -> str:
    if run.state in ("running", "completed"):
        return str(run.status.get("reason") or "") if run.completed else ""
    return run.remark
