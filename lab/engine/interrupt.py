"""Ctrl-C ends a run after the client at work, so that nothing is cut in the middle.

Knows the signal; does not know what a run does with it.
"""

from __future__ import annotations

import signal
from types import FrameType
from typing import Any


class GentleInterrupt:
    """An observer that ends the run after the current client once Ctrl-C was pressed; twice ends at once.

    Use it as a context manager, in the main thread. Raises KeyboardInterrupt from `replied`. Where SIGINT is
    ignored (a script's `&` starts a process so), it stays ignored: Ctrl-C is then meant for another.
    """

    def __init__(self) -> None:
        self.pressed = False
        self._before: Any = None

    def __enter__(self) -> GentleInterrupt:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *details: Any) -> None:
        signal.signal(signal.SIGINT, self._before)

    def replied(self, server_round: int, done: int, total: int) -> None:
        """The moment between two clients."""
        if self.pressed:
            raise KeyboardInterrupt

    def round_done(self, done: object) -> None:
        """The moment between two rounds."""
        if self.pressed:
            raise KeyboardInterrupt

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
