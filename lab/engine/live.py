"""Shows the progress of a run: a line per round and, on a terminal, a progress bar with the time left."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from server_app.rounds import Round
from server_app.rows import Row

HEAD = " round   train loss   test accuracy   clients   seconds"


class LiveView:
    """An observer that prints the rounds of a run; use it as a context manager."""

    def __init__(self, console: Console, *, rounds: int, quiet: bool = False) -> None:
        self.console = console
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
        self._show(HEAD)
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
        self._show(line(done.row))

    def _show(self, text: str) -> None:
        if not self.quiet:
            self.console.print(text, highlight=False, soft_wrap=True)


def line(row: Row) -> str:
    """The line of one round, under HEAD."""
    loss = "" if row.get("train/loss") is None else f"{row['train/loss']:.4f}"
    accuracy = "" if row.get("test/accuracy") is None else f"{100 * row['test/accuracy']:.2f} %"
    seconds = sum(value for key, value in row.items() if key.startswith("seconds/"))
    return f"{row['round']:>6}   {loss:>10}   {accuracy:>13}   {row.get('clients', ''):>7}   {seconds:>7.1f}"
