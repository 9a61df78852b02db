"""Waits that grow the longer nothing happens, and the limit of a message's time. Knows nothing of Flower."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from fedstride.errors import ConfigError

SHARE = 0.1  # a pause is this share of the time that has passed without an event
LIMIT_VARIABLE = "FEDSTRIDE_MESSAGE_SECONDS"


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


def message_limit(environment: Mapping[str, str] = os.environ) -> float:
    """The seconds after which a message's process is killed: FEDSTRIDE_MESSAGE_SECONDS, by default without limit.

    Raises ConfigError if the variable is not a positive number.
    """
    text = environment.get(LIMIT_VARIABLE, "")
    if not text:
        return float("inf")
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ConfigError(
            f"{LIMIT_VARIABLE} is {text!r}, but must be a number of seconds above 0, as in {LIMIT_VARIABLE}=3600"
        )
    return seconds
