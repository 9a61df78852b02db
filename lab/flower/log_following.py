"""Follows the log of a deployed run over a connection that may break."""

from __future__ import annotations

import time
from collections.abc import Iterator

from fedstride.errors import RunError

from .superlink_requests import Control, Listed


class Followed:
    """The lines of a run's log until the run ends; iterate over it once. `run` is then the run as it ended.

    The log arrives in pieces, which may end inside a line. After a failed call it is continued behind the last
    piece, `pause` seconds later. Raises the RunError of the last of `attempts` failed calls in a row, and
    ConfigError if the SuperLink does not have the run.
    """

    run: Listed

    def __init__(self, control: Control, run_id: str, *, attempts: int, pause: float) -> None:
        self._control, self._run_id = control, run_id
        self._attempts, self._pause = attempts, pause

    def __iter__(self) -> Iterator[str]:
        moment, rest, broken = 0.0, "", 0
        while True:
            try:
                for piece, until in self._control.log(self._run_id, moment):
                    moment, broken = until, 0
                    *lines, rest = (rest + piece).split("\n")
                    yield from lines
                self.run = self._control.run(self._run_id)
            except RunError:
                broken += 1
                if broken == self._attempts:
                    raise
            else:
                broken = 0
                if self.run.finished:
                    yield from [rest] if rest else []
                    return
            time.sleep(self._pause)
