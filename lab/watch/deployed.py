"""A deployed run, as the log of its ServerApp shows it, over the connection that submitting uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fedstride.errors import RunError, printable
from fedstride.files.bounded_reading import from_json
from server_app.reports.progress import after, is_event

from ..flower.control import Control
from ..flower.endings import PROGRESS, plain, standing
from ..flower.following import Followed
from .sight import Sight

ATTEMPTS = 5
PAUSE_SECONDS = 2.0


def follow(control: Control, run_id: str) -> Iterator[Sight]:
    """What is known of the run, whenever it changes, until the run ends. A broken connection is opened again.

    Raises ConfigError if the SuperLink does not have the run, RunError if it can no longer be reached.
    """
    sight = Sight(run_id, state=standing(control.run(run_id), []).state)
    yield sight
    log: list[str] = []
    followed = Followed(control, run_id, attempts=ATTEMPTS, pause=PAUSE_SECONDS)
    try:
        for line in followed:
            log.append(line)
            if (event := event_in(line)) is not None:
                sight = seen(sight, event)
                yield sight
    except RunError as error:
        raise RunError(f"{error}; the run may still continue") from error
    stands = standing(followed.run, log)
    yield replace(sight, state=stands.state, reason=stands.reason)


def event_in(line: str) -> dict[str, Any] | None:
    """The event in a line of the log; None if it has none, or a damaged one."""
    text = plain(line)
    found = PROGRESS.search(text) if text.endswith("}") else None
    try:
        event = from_json(found[1]) if found else None
    except ValueError:
        return None
    return event if is_event(event) else None


def seen(sight: Sight, event: dict[str, Any]) -> Sight:
    """What is known after an event (`server_app/reports/progress.py`)."""
    points = dict(sight.points)
    texts = event.get("reasons") or {} if event.get("event") in ("asked", "closed") else sight.reasons
    if event.get("event") == "closed" and event.get("value") is not None:
        points[int(event["round"])] = float(event["value"])
    return replace(
        sight,
        state="running",
        round=int(event.get("round", sight.round)),
        rounds=event.get("rounds", sight.rounds),
        metric=event.get("metric", sight.metric),
        points=points,
        clients=after(sight.clients, event),
        reasons={str(label): printable(str(text)) for label, text in texts.items()},
    )
