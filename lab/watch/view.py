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
from .sight import Sight, changes, counts, named

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
        self.sight: Sight | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self.sight is not None:
            yield drawn(self.sight, options.max_width, console.height, ascii_only=options.ascii_only)


def show(console: Console, sights: Iterable[Sight]) -> Sight:
    """Show a run until it ends; what is known of it at last. `sights` has at least one."""
    last: Sight | None = None
    if not console.is_terminal:
        for sight in sights:
            for line in changes(last, sight):
                say(console, line)
            last = sight
    else:
        display = Display()
        with Live(display, console=console, refresh_per_second=REFRESHES):
            for sight in sights:
                display.sight = last = sight
    assert last is not None
    return last


def drawn(sight: Sight, width: int, height: int, *, ascii_only: bool = False) -> Group:
    """The display of a run: a heading, the curve of the metric that decides, and the clients."""
    parts: list[Text | Table] = [
        Text(printable(text), style=style, overflow="ellipsis", no_wrap=True)
        for text, style in ((sight.heading, "bold"), (sight.standing, ""))
        if text
    ]
    if sight.reason:
        parts.append(Text(printable(sight.reason)))
    figure = _curve(sight, width, ascii_only)
    parts += figure
    rows = max(height - len(figure) - len(parts) - 2, LEAST_ROWS)
    parts += _clients(sight, rows)
    return Group(*parts)


def _curve(sight: Sight, width: int, ascii_only: bool) -> list[Text]:
    values = [sight.points[number] for number in sorted(sight.points)]
    finite = [value for value in values if isfinite(value)]
    if not finite:
        return []
    labels = [as_text(sight.metric, bound) for bound in (max(finite), min(finite))]
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


def _clients(sight: Sight, rows: int) -> list[Text | Table]:
    if not sight.clients:
        return []
    shown = list(sight.clients)
    if len(shown) > rows:
        place = {state: number for number, state in enumerate(ORDER)}
        shown = sorted(shown, key=lambda label: place.get(sight.clients[label], len(ORDER)))[:rows]
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(no_wrap=True, min_width=min(max(len(named(label)) for label in shown), MOST_NAME))
    table.add_column(no_wrap=True, min_width=max(map(len, ORDER)))
    table.add_column(no_wrap=True)
    for label in shown:
        state = sight.clients[label]
        reason = sight.reasons.get(label, "") if state in (REJECTED, LOST) else ""
        table.add_row(
            Text(printable(named(label))),
            Text(printable(state), style=COLOURS.get(state, "")),
            Text(printable(reason)),
        )
    summary = Text(f"round {sight.round}: {printable(counts(sight.clients))}", style="dim", no_wrap=True)
    return [summary, table]
