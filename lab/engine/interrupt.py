"""Handles Ctrl-C: the run ends after the current client, not in the middle of its training."""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any


class InterruptHandler:
    """An observer that ends the run after the current client when Ctrl-C was pressed; twice: immediately.

    Use it as a context manager, in the main thread. `replied` and `round_done` raise KeyboardInterrupt. If
    SIGINT is ignored (as in a process that a script started with `&`), it stays ignored: Ctrl-C is then meant
    for another process.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None

    def __enter__(self) -> InterruptHandler:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *details: Any) -> None:
        signal.signal(signal.SIGINT, self._before)

    def replied(self, server_round: int, done: int, total: int) -> None:
        """Called after each client: raises KeyboardInterrupt if Ctrl-C was pressed."""
        if self.pressed:
            raise KeyboardInterrupt

    def round_done(self, done: object) -> None:
        """Called after each round: raises KeyboardInterrupt if Ctrl-C was pressed."""
        if self.pressed:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
