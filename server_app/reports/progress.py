"""Tells whoever watches a run how its clients stand, while a round is in progress.

Rows of metrics and clients are written at the end of a round, which can last for hours. Between them, a run keeps
one small file in its folder, and a deployed run writes lines into its log, which is all that a submitter can read.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedstride.errors import last_line
from fedstride.files import atomic
from fedstride.plain_numbers import is_number

from ..records.row_values import Row, is_round

FILE = "progress.json"
MOST_REASONS, LONGEST_REASON = 20, 200  # in the event of a round, and characters of one
BATCHES = 20  # of replies in a round, at most; after each, the file is written and a line logged

SHARE = 0.01
"""The file is written when so many of the run's clients have replied: with 10,000 it has 200 kB."""

WAITING, TRAINING, ANSWERED, REJECTED, LOST = "waiting", "training", "answered", "rejected", "lost"
"""States of a client: not asked in this round, asked, has replied, its reply was not used, it did not reply."""

STATES = {
    "used": ANSWERED,
    "rejected": REJECTED,
    "refused": REJECTED,
    "no reply": LOST,
    "left": LOST,
    "left out": LOST,
}
"""The state of a client at the end of a round, by the status in its row."""

Label = int | str
"""What stands for a client in records: its name, or else its id."""

Event = dict[str, Any]
"""`begins`: clients, rounds and metric of the run; `asked`, `answered`, `closed`: what happened in a round."""


def begins(clients: Sequence[Label], rounds: int, metric: str, done: int) -> Event:
    """A run begins, or is resumed after `done` rounds."""
    return {"event": "begins", "clients": list(clients), "rounds": rounds, "metric": metric, "round": done}


def asked(server_round: int, clients: Sequence[Label]) -> Event:
    """These clients were asked to train."""
    return {"event": "asked", "round": server_round, "clients": list(clients)}


def answered(server_round: int, clients: Sequence[Label]) -> Event:
    """These clients have replied."""
    return {"event": "answered", "round": server_round, "clients": list(clients)}


def closed(server_round: int, clients: Sequence[Row], value: float | None) -> Event:
    """A round is over. `clients`: its rows of clients.jsonl; `value`: the metric that decides.

    It has the reasons of the first `MOST_REASONS` replies that were not used: a large federation can have very
    many, and a client can write a long text.
    """
    states = [(row, STATES.get(row["status"], ANSWERED)) for row in clients if row.get("client") is not None]
    unused = [row for row, state in states if state != ANSWERED]
    return {
        "event": "closed",
        "round": server_round,
        "states": {str(row["client"]): STATES[row["status"]] for row in unused},
        "reasons": {
            str(row["client"]): last_line(row["reason"])[:LONGEST_REASON]
            for row in unused[:MOST_REASONS]
            if row.get("reason")
        },
        "value": value,
    }


def is_event(value: Any) -> bool:
    """Whether this has the form of an event: it comes from a log, in which anyone may have written anything."""
    if not isinstance(value, dict) or value.get("event") not in ("begins", "asked", "answered", "closed"):
        return False
    clients, texts = value.get("clients", []), [value.get("states", {}), value.get("reasons", {})]
    return (
        is_round(value.get("round"))
        and is_round(value.get("rounds", 0))
        and isinstance(value.get("metric", ""), str)
        and isinstance(clients, list)
        and all(isinstance(client, (int, str)) for client in clients)
        and all(
            isinstance(by_client, dict) and all(isinstance(text, str) for text in by_client.values())
            for by_client in texts
        )
        and (value.get("value") is None or is_number(value["value"]))
    )


def after(states: Mapping[str, str], event: Event) -> dict[str, str]:
    """The states of the clients after an event, by label."""
    return {**({} if event.get("event") == "begins" else states), **changed(states, event)}


def changed(states: Mapping[str, str], event: Event) -> dict[str, str]:
    """The new states of the clients whose state an event changes, by label."""
    names = [str(client) for client in event.get("clients", ())]
    match event.get("event"):
        case "begins":
            return dict.fromkeys(names, WAITING)
        case "asked":
            former = [name for name, state in states.items() if state != WAITING]
            return {**dict.fromkeys(former, WAITING), **dict.fromkeys(names, TRAINING)}
        case "answered":
            return dict.fromkeys(names, ANSWERED)
        case "closed":
            over = [name for name, state in states.items() if state == TRAINING]
            return {**dict.fromkeys(over, ANSWERED), **event.get("states", {})}
    return {}


class Progress:
    """Passes the events of a run on, and keeps the file in its folder; a file that cannot be written is left out.

    `tell`: gets each event; the replies of a round in at most `BATCHES` parts.
    """

    def __init__(self, folder: Path, tell: Callable[[Event], None] | None) -> None:
        self._path = folder / FILE
        self._tell = tell
        self._states: dict[str, str] = {}
        self._texts: dict[str, str] = {}  # each client's part of the file: most of them stay as they are
        self._round = 0
        self._replied: list[Label] = []
        self._batch = 1
        self._unwritten = 0  # replies since the file was written

    def begins(self, clients: Sequence[Label], rounds: int, metric: str, done: int) -> None:
        """The roll call is over."""
        self._round = done
        self._pass(begins(clients, rounds, metric, done))

    def asked(self, server_round: int, clients: Sequence[Label]) -> None:
        """The messages of a round's training are about to be sent."""
        self._round, self._replied = server_round, []
        self._batch = -(-len(clients) // BATCHES)
        self._pass(asked(server_round, clients))

    def answered(self, clients: Sequence[Label]) -> None:
        """These clients have replied."""
        self._replied += clients
        if len(self._replied) >= self._batch:
            replied, self._replied = self._replied, []
            self._unwritten += len(replied)
            self._pass(answered(self._round, replied), writes=self._unwritten >= SHARE * len(self._states))

    def closed(self, clients: Sequence[Row], value: float | None) -> None:
        """The round is over, and what is due has been evaluated."""
        self._pass(closed(self._round, clients, value))

    def end(self) -> None:
        """The run ends: the file is removed."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _pass(self, event: Event, *, writes: bool = True) -> None:
        new = changed(self._states, event)
        self._states |= new
        self._texts |= {name: f"{json.dumps(name)}: {json.dumps(state)}" for name, state in new.items()}
        if writes:
            self._unwritten = 0
            with contextlib.suppress(OSError):
                atomic.write(self._path, self._content())
        if self._tell is not None:
            self._tell(event)

    def _content(self) -> bytes:
        """What the file says, as JSON."""
        return f'{{"round": {self._round}, "clients": {{{", ".join(self._texts.values())}}}}}'.encode()
