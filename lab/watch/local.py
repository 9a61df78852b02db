"""A run on this machine, as its folder shows it now."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fedstride.files import bounded_reading
from server_app.file_names import METRICS, STATUS
from server_app.records.run_folder import is_locked
from server_app.reports.curve import points
from server_app.reports.progress import FILE, STATES, WAITING

from ..results.run_folders import Run, load
from .watched_run import WatchedRun

PAUSE_SECONDS = 0.5


def looks(folder: Path) -> Iterator[WatchedRun]:
    """What the folder says, whenever it changes, until the run ends. Raises ConfigError if it cannot be read."""
    before, marks = None, None
    while True:
        if (now := _marks(folder)) != marks:  # the records of a long run are long
            marks, watched = now, look(folder)
            if watched != before:
                yield watched
            if watched.ended:
                return
            before = watched
        time.sleep(PAUSE_SECONDS)


def look(folder: Path) -> WatchedRun:
    """What the folder says now. Raises ConfigError if it cannot be read."""
    run = load(folder)
    done = int(run.rows[-1]["round"]) if run.rows else 0
    metric = run.headline
    copied = bool(run.fetched) and run.state == "running"  # nothing more will come
    number, clients = _in_progress(folder) if run.state == "running" else (0, {})
    reasons = {}
    if number <= done:  # no round is in progress
        rows = [row for row in run.clients.rows if row["round"] == done and row.get("client") is not None]
        number, clients = done, {**clients, **{str(row["client"]): _state(row) for row in rows}}
        reasons = {str(row["client"]): str(row["reason"]) for row in rows if row.get("reason")}
    return WatchedRun(
        name=run.folder.name,
        state="fetched" if copied else run.state,
        reason=run.remark if copied else _reason(run),
        round=number,
        rounds=run.config.rounds,
        metric=metric,
        points=dict(points(run.rows, metric)),
        clients=clients,
        reasons=reasons,
    )


def _marks(folder: Path) -> tuple[object, ...]:
    """What changes when the folder says something else."""
    return (is_locked(folder), *(_mark(folder / name) for name in (METRICS, STATUS, FILE)))


def _mark(path: Path) -> tuple[int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size


def _in_progress(folder: Path) -> tuple[int, dict[str, str]]:
    """The round and the states in the file of the round in progress; none if there is no such file."""
    try:
        progress = bounded_reading.from_json(bounded_reading.text(folder / FILE))
        return int(progress["round"]), {str(label): str(state) for label, state in progress["clients"].items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return 0, {}


def _state(row: Mapping[str, Any]) -> str:
    return STATES.get(str(row.get("status")), WAITING)


def _reason(run: Run) -> str:
    if run.state in ("running", "completed"):
        return str(run.status.get("reason") or "") if run.completed else ""
    return run.remark
