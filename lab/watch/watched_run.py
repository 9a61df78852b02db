"""What is known of a run that is watched, and what changed between two looks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from fedstride.figures.metrics import as_text, shown
from server_app.reports.progress import ANSWERED, TRAINING, WAITING
from server_app.reports.round_line import line

MOST_NAMES = 8
"""Clients that one line names; of more, it says how many there are."""


@dataclass(frozen=True)
class WatchedRun:
    """A run at one moment.

    `points`: the metric that decides, by round. `clients`: the state of each client by label
    (`server_app/reports/progress.py`); of the round in progress, or of the last one.
    """

    name: str
    state: str = "pending"
    reason: str = ""
    round: int = 0  # completed, or in progress
    rounds: int | None = None
    metric: str = ""
    points: Mapping[int, float] = field(default_factory=dict)
    clients: Mapping[str, str] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)  # why a reply was not used, as far as is known

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state not in ("pending", "running")

    @property
    def heading(self) -> str:
        """One line: which run, and its state."""
        return f"{self.name}   {self.state}"

    @property
    def standing(self) -> str:
        """One line: the round, and the newest figure; empty if neither is known."""
        parts = [] if self.rounds is None else [f"round {self.round} of {self.rounds}"]
        if self.points:
            newest = max(self.points)
            parts.append(f"{shown(self.metric)} {as_text(self.metric, self.points[newest])} in round {newest}")
        return "   ".join(parts)


def changes(before: WatchedRun | None, now: WatchedRun) -> list[str]:
    """What is new, in lines; everything if nothing was known before."""
    old = before or WatchedRun(now.name, state="")
    lines = [] if old.state == now.state else [_state(now)]
    new = sorted(now.points.keys() - old.points.keys())
    figures = [line({"round": number, now.metric: now.points[number]}, now.metric) for number in new]
    moved = {
        label: state
        for label, state in now.clients.items()
        if state != WAITING and (state != old.clients.get(label) or now.round != old.round)
    }
    clients = f"round {now.round:>3}   {_of(moved)}" if moved else ""
    return [
        *([] if now.ended else lines),
        *figures,
        *([clients] if clients else []),
        *(lines if now.ended else []),
    ]


def named(label: str) -> str:
    """What stands for a client: its name, or `client 3`."""
    return f"client {label}" if label.isdecimal() else label


def counts(clients: Mapping[str, str]) -> str:
    """How many clients are in each state."""
    return ", ".join(f"{count} {state}" for state, count in Counter(clients.values()).items())


def _state(watched: WatchedRun) -> str:
    return f"{watched.name}: {watched.state}" + (f" ({watched.reason})" if watched.reason else "")


def _of(clients: Mapping[str, str]) -> str:
    """Who is in which state: the exceptions first."""
    usual = (ANSWERED, TRAINING)
    by_state: dict[str, list[str]] = {}
    for label, state in sorted(clients.items(), key=lambda pair: pair[1] in usual):
        by_state.setdefault(state, []).append(label)
    return "; ".join(f"{_names(labels)} {state}" for state, labels in by_state.items())


def _names(labels: list[str]) -> str:
    more = len(labels) - MOST_NAMES
    return ", ".join(map(named, labels[:MOST_NAMES])) + (f" and {more} more" if more > 0 else "")
