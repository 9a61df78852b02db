"""How a command ends: one line and an exit code for each error and signal."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from fedstride.errors import ConfigError, RunError
from fedstride.processes import exits
from fedstride.processes.unix_signals import Terminated


@pytest.fixture(autouse=True)
def _handler() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (ConfigError("no\nsuch key"), 2, "error: no such key\n"),
        (RunError("no clients"), 1, "error: no clients\n"),
        (KeyboardInterrupt(), 130, "interrupted\n"),
        (Terminated(), 143, "terminated\n"),
        (SystemExit(3), 3, ""),
    ],
)
def test_an_end_has_one_line_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, said: str
) -> None:
    def command() -> None:
        raise error

    with pytest.raises(SystemExit) as end:
        exits.run(command)
    assert end.value.code == code
    assert capsys.readouterr().err == said


def test_sigterm_ends_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        exits.run(lambda: signal.raise_signal(signal.SIGTERM))
    assert end.value.code == 143


def test_an_ignored_sigterm_stays_ignored() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    exits.run(lambda: signal.raise_signal(signal.SIGTERM))
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
