"""How a watched run is shown: on a terminal a display that is drawn again and again, elsewhere lines."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from fedstride.errors import printable
from fedstride.figures.metrics import as_text
from server_app.reports.progress import ANSWERED, LOST, REJECTED, TRAINING, WAITING

from ..terminal import say
from .curve import curve
from .watched_run import WatchedRun, changes, counts, named

COLOURS = {WAITING: "dim", TRAINING: "yellow", ANSWERED: "green", REJECTED: "red", LOST: "red"}
ORDER = (REJECTED, LOST, TRAINING, WAITING, ANSWERED)
"""The states in the order of the rows, when there are more clients than rows."""

CURVE_HEIGHT, LEAST_ROWS = 5, 4
MOST_NAME = 30  # characters of a client's name that are always shown
WIDEST_COLUMN = 4  # characters of one round in the curve
REFRESHES = 4  # a second


class Display:
    """What is known now, as rich draws it: as wide and high as the terminal is."""

    def __init__(self) -> None:
        self.watched: WatchedRun | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.watched is not None:
            yield drawn(self.watched, options.max_width, console.height, ascii_only=options.ascii_only)


def show(console: Console, states: Iterable[WatchedRun]) -> WatchedRun:
    """Show a run until it ends; what is known of it at last. `states` has at least one."""
    last: WatchedRun | None = None
    if not console.is_terminal:
        for watched in states:
            for line in changes(last, watched):
                say(console, line)
            last = watched
    else:
        display = Display()
        with Live(display, console=console, refresh_per_second=REFRESHES):
            for watched in states:
                display.watched = last = watched
    assert last is not None
    return last


def drawn(watched: WatchedRun, width: int, height: int, *, ascii_only: bool = False) -> Group:
    """The display of a run: a heading, the curve of the metric that decides, and the clients."""
    parts: list[Text | Table] = [
        Text(printable(text), style=style, overflow="ellipsis", no_wrap=True)
        for text, style in ((watched.heading, "bold"), (watched.standing, ""))
        if text
    ]
    if watched.reason:
        parts.append(Text(printable(watched.reason)))
    figure = _curve(watched, width, ascii_only)
    parts += figure
    rows = max(height - len(figure) - len(parts) - 2, LEAST_ROWS)
    parts += _clients(watched, rows)
    return Group(*parts)


def _curve(watched: WatchedRun, width: int, ascii_only: bool) -> list[Text]:
    values = [watched.points[number] for number in sorted(watched.points)]
    finite = [value for value in values if isfinite(value)]
    if not finite:
        return []
    labels = [as_text(watched.metric, bound) for bound in (max(finite), min(finite))]
    margin = max(map(len, labels)) + 2
    space = max(width - margin - 1, 8)
    repeated = [value for value in values for _ in range(min(max(space // len(values), 1), WIDEST_COLUMN))]
    lines = curve(repeated, width=space, height=CURVE_HEIGHT, ascii_only=ascii_only)
    edge = "|" if ascii_only else "│"
    sides = [labels[0], *[""] * (CURVE_HEIGHT - 2), labels[1]]
    return [
        Text(f"{side:>{margin - 2}} {edge}", style="dim", no_wrap=True).append(line, style="not dim cyan")
        for side, line in zip(sides, lines, strict=False)
    ]


def _clients(watched: WatchedRun, rows: int) -> list[Text | Table]:
    if not watched.clients:
        return []
    shown = list(watched.clients)
    if len(shown) > rows:
        place = {state: number for number, state in enumerate(ORDER)}
        shown = sorted(shown, key=lambda label: place.get(watched.clients[label], len(ORDER)))[:rows]
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, min_width=min(max(len(named(label)) for label in shown), MOST_NAME))
    table.add_column(no_wrap=True, min_width=max(map(len, ORDER)))
    table.add_column(no_wrap=True)
    for label in shown:
        state = watched.clients[label]
        reason = watched.reasons.get(label, "") if state in (REJECTED, LOST) else ""
        table.add_row(
            Text(printable(named(label))),
            Text(printable(state), style=COLOURS.get(state, "")),
            Text(printable(reason)),
        )
    summary = Text(f"round {watched.round}: {printable(counts(watched.clients))}", style="dim", no_wrap=True)
    return [summary, table]
