"""An error of a ServerApp is one line: Flower's traceback and its page about the exit code are left out."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from fedstride.errors import CheckpointError, ConfigError, FedstrideError, RunError
from fedstride.flower.logs import log, say_once


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def kept() -> Iterator[Kept]:
    logger, handler = logging.getLogger("flwr"), Kept()
    logger.addHandler(handler)
    filters = list(logger.filters)
    yield handler
    logger.removeHandler(handler)
    logger.filters = filters


def as_flower_ends(error: Exception) -> None:
    """What Flower 1.39 logs when a ServerApp raises."""
    try:
        raise error
    except Exception as raised:
        log(logging.ERROR, "%s raised an exception", "ServerApp", exc_info=raised)
    log(logging.ERROR, "Exit Code: 201\n\nAn unhandled exception occurred in the ServerApp.\n")


@pytest.mark.parametrize("error", [RunError("no node"), ConfigError("clients = 3"), CheckpointError("a\nb")])
def test_our_errors_are_said_once(kept: Kept, error: FedstrideError) -> None:
    log(logging.ERROR, "%s", error)
    say_once(type(error))
    as_flower_ends(error)
    assert kept.lines == [str(error)]


@pytest.mark.parametrize("error", [ZeroDivisionError("x"), OSError("disk"), ImportError("torch")])
def test_other_errors_have_their_traceback(kept: Kept, error: Exception) -> None:
    say_once(RunError)
    as_flower_ends(error)
    assert "Traceback" in kept.lines[0] and str(error) in kept.lines[0]
    assert kept.lines[1].startswith("Exit Code: 201")
