"""One line about what is going on, which changes in place: below a notebook's cell, or on a terminal."""

from __future__ import annotations

import sys
import time
from typing import Any

from fedstride.errors import printable
from fedstride.figures.metrics import as_text, shown
from server_app.config.schema import Config
from server_app.rounds import Round

from ..terminal import redraw

SECONDS = 0.2
"""Between two changes of the line, at least."""


class StatusLine:
    """The line, for nobody if the process has neither a notebook nor a terminal; a context manager."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._notebook = not quiet and _in_notebook()
        self._terminal = not quiet and not self._notebook and _on_terminal()
        self._handle: Any = None
        self._shown = ""
        self._at = 0.0

    def __enter__(self) -> StatusLine:
        return self

    def __exit__(self, *details: Any) -> None:
        if self._terminal and self._shown:
            redraw("\n")

    def show(self, text: str, *, now: bool = True) -> None:
        """Show this text in place of the one before; without `now` only if that was shown for a while."""
        if not now and time.monotonic() - self._at < SECONDS:
            return
        self._shown, self._at = printable(text), time.monotonic()
        if self._terminal:
            redraw(self._shown)
        elif self._notebook:
            self._display()

    def _display(self) -> None:
        from IPython.display import display

        if self._handle is None:
            self._handle = display(  # type: ignore[no-untyped-call]
                {"text/plain": self._shown}, raw=True, display_id=True
            )
        else:
            self._handle.update({"text/plain": self._shown}, raw=True)


class Rounds:
    """An observer that says in the line how a run stands."""

    def __init__(self, line: StatusLine, config: Config, title: str) -> None:
        self._line, self._config, self._title = line, config, title
        self._figure = ""

    def replied(self, server_round: int, done: int, total: int) -> None:
        """Say which client of which round has replied."""
        self._say(f"round {server_round} of {self._config.rounds}, client {done} of {total}", now=False)

    def round_done(self, done: Round) -> None:
        """Say which round is done, and its figure."""
        metric = self._config.headline
        if done.row.get(metric) is not None:
            self._figure = f", {shown(metric)} {as_text(metric, done.row[metric])}"
        self._say(f"round {done.number} of {self._config.rounds}", now=done.number == self._config.rounds)

    def _say(self, text: str, *, now: bool) -> None:
        self._line.show(f"{self._title}: {text}{self._figure}", now=now)


def _in_notebook() -> bool:
    """Whether the process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()
