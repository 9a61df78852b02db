"""A deployed run, as the log of its ServerApp shows it, over the connection that submitting uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fedstride.errors import RunError, printable
from fedstride.files.bounded_reading import from_json
from server_app.reports.progress import after, is_event

from ..flower.log_following import Followed
from ..flower.run_status import PROGRESS, plain, standing
from ..flower.superlink_requests import Control
from .watched_run import WatchedRun

ATTEMPTS = 5
PAUSE_SECONDS = 2.0


def follow(control: Control, run_id: str) -> Iterator[WatchedRun]:
    """What is known of the run, whenever it changes, until the run ends. A broken connection is opened again.

    Raises ConfigError if the SuperLink does not have the run, RunError if it can no longer be reached.
    """
    watched = WatchedRun(run_id, state=standing(control.run(run_id), []).state)
    yield watched
    log: list[str] = []
    followed = Followed(control, run_id, attempts=ATTEMPTS, pause=PAUSE_SECONDS)
    try:
        for line in followed:
            log.append(line)
            if (event := event_in(line)) is not None:
                watched = seen(watched, event)
                yield watched
    except RunError as error:
        raise RunError(f"{error}; the run may still continue") from error
    stands = standing(followed.run, log)
    yield replace(watched, state=stands.state, reason=stands.reason)


def event_in(line: str) -> dict[str, Any] | None:
    """The event in a line of the log; None if it has none, or a damaged one."""
    text = plain(line)
    match = PROGRESS.search(text) if text.endswith("}") else None
    try:
        event = from_json(match[1]) if match else None
    except ValueError:
        return None
    return event if is_event(event) else None


def seen(watched: WatchedRun, event: dict[str, Any]) -> WatchedRun:
    """What is known after an event (`server_app/reports/progress.py`)."""
    points = dict(watched.points)
    texts = event.get("reasons") or {} if event.get("event") in ("asked", "closed") else watched.reasons
    if event.get("event") == "closed" and event.get("value") is not None:
        points[int(event["round"])] = float(event["value"])
    return replace(
        watched,
        state="running",
        round=int(event.get("round", watched.round)),
        rounds=event.get("rounds", watched.rounds),
        metric=event.get("metric", watched.metric),
        points=points,
        clients=after(watched.clients, event),
        reasons={str(label): printable(str(text)) for label, text in texts.items()},
    )
