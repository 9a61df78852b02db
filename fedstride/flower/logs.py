"""Flower's log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("flwr").log
"""Flower's log function: `flwr.common.log` up to 1.34, `flwr.supercore.log` from 1.35 on. Both use the logger
`flwr`."""


_SITE = logging.getLogger("flwr.site")  # with a level of its own: a desk hides the other lines of its clients
_SITE.setLevel(logging.WARNING)


def to_site(data: str, text: str) -> None:
    """Log a line for the people of the site with these data; it may have cells of them."""
    _SITE.warning("%s: %s", data, text)


@contextmanager
def lines_to_sites() -> Iterator[list[tuple[str, str]]]:
    """A list that gets the arguments of each `to_site` of this process, which is then not logged."""
    found: list[tuple[str, str]] = []

    def keep(record: logging.LogRecord) -> bool:
        data, text = record.args  # type: ignore[misc]
        found.append((str(data), str(text)))
        return False

    _SITE.addFilter(keep)
    try:
        yield found
    finally:
        _SITE.removeFilter(keep)


class _SaidBefore(logging.Filter):
    """Leaves out what Flower logs of an error that was logged: its traceback, and the page about its exit code.

    Flower (1.39 to 1.42) logs every exception of a ServerApp with its traceback, and then how the process ends.
    """

    def __init__(self, kind: type[Exception]) -> None:
        super().__init__()
        self._kind = kind
        self._found = False

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, self._kind):
            self._found = True
            return False
        return not (self._found and record.getMessage().startswith("Exit Code:"))


def say_once(kind: type[Exception]) -> None:
    """Leave out Flower's own lines of errors of this kind, which were logged in one line."""
    logging.getLogger("flwr").addFilter(_SaidBefore(kind))
