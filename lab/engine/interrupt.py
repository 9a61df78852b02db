"""Handles Ctrl-C and SIGTERM: the run ends with its files complete, and can be resumed."""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path
from types import FrameType
from typing import Any

from fedstride.processes import unix_signals
from server_app.file_names import STATUS
from server_app.records.checkpoint import has_checkpoint

from ..results.status import read_status


class InterruptHandler:
    """An observer that ends the run after the current client when Ctrl-C was pressed; twice: immediately.

    SIGTERM ends the run immediately, because whoever sent it kills the process a few seconds later. Use it as a
    context manager, in the main thread. `replied` and `round_done` raise KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self._pressed = False
        self._end = unix_signals.RaiseOnce()
        self._handlers = contextlib.ExitStack()

    def __enter__(self) -> InterruptHandler:
        self._handlers.enter_context(unix_signals.handled(self._note))
        return self

    def __exit__(self, *details: Any) -> None:
        self._handlers.close()

    def replied(self, server_round: int, done: int, total: int) -> None:
        """Called after each client: raises KeyboardInterrupt if Ctrl-C was pressed."""
        self._check()

    def round_done(self, done: object) -> None:
        """Called after each round: raises KeyboardInterrupt if Ctrl-C was pressed."""
        self._check()

    def _check(self) -> None:
        if self._pressed:
            self._end.number = signal.SIGINT  # a later signal must not interrupt the writing of the last files
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and not self._pressed:
            self._pressed = True
        else:
            self._end(number)


def how_to_resume(folder: Path) -> str:
    """What to do with the stopped run in this folder: the command that resumes it, if it has a checkpoint."""
    return next_step(folder, f"resume with: fedstride resume {folder}")


def next_step(folder: Path, resume: str) -> str:
    """`resume`, if the stopped run in this folder has a checkpoint; else why it must be started again."""
    if not folder.is_dir():
        return f"{NO_ROUND}, so start it again"
    if has_checkpoint(folder):
        return resume
    rounds = None
    with contextlib.suppress(OSError, ValueError):
        rounds = read_status(folder / STATUS).get("rounds")
    return f"{NO_CHECKPOINT if rounds else NO_ROUND}, so start it again; its folder: {folder}"


NO_ROUND = "no round was completed"
NO_CHECKPOINT = "it has no checkpoint (checkpoint_every=0)"
