"""Pauses between two looks for an event, which grow the longer nothing happens."""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 0.1  # a pause is this share of the time that has passed without an event


class Growing:
    """Pauses, in seconds, that grow from `shortest` to `longest` with the time since the last restart.

    An event is thus noticed late by at most a tenth of the time that it took to come, or by `shortest`.
    """

    def __init__(self, shortest: float, longest: float, now: Callable[[], float] = time.monotonic) -> None:
        self._shortest, self._longest = shortest, longest
        self._now = now
        self.restart()

    def restart(self) -> None:
        """Something happened: begin with the shortest pause."""
        self._since = self._now()

    def pause(self) -> float:
        """The next pause."""
        return min(self._longest, max(self._shortest, SHARE * (self._now() - self._since)))
