"""Shows the progress of a run: a line per round and, on a terminal, a progress bar with the time left."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from server_app.reports.round_line import columns, head
from server_app.rounds import Round

from ..terminal import say


class LiveView:
    """An observer that prints the rounds of a run; use it as a context manager."""

    def __init__(self, console: Console, *, rounds: int, metric: str, quiet: bool = False) -> None:
        self.console = console
        self.metric = metric
        self.quiet = quiet
        self._bar = Progress(
            TextColumn("  {task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("rounds,"),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
        )
        self._task = self._bar.add_task("round 1", total=rounds)

    def __enter__(self) -> LiveView:
        self._show(head(self.metric))
        self._bar.start()
        return self

    def __exit__(self, *details: Any) -> None:
        self._bar.stop()

    def replied(self, server_round: int, done: int, total: int) -> None:
        """Advance the bar by one client."""
        self._bar.update(
            self._task,
            completed=server_round - 1 + 0.95 * done / total,
            description=f"round {server_round}, client {done} of {total}",
        )

    def round_done(self, done: Round) -> None:
        """Print the line of the round."""
        self._bar.update(self._task, completed=done.number)
        self._show(columns(done.row, self.metric))

    def _show(self, text: str) -> None:
        if not self.quiet:
            say(self.console, text)
