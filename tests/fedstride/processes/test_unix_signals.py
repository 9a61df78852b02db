"""SIGTERM and Ctrl-C: raised once, and not inside of sections that write files."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from fedstride.processes import unix_signals

KINDS = {signal.SIGINT: KeyboardInterrupt, signal.SIGTERM: unix_signals.Terminated}

pytestmark = pytest.mark.usefixtures("ctrl_c")


@pytest.fixture(params=KINDS)
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    """A signal; without the code under test it does nothing here."""
    before = signal.signal(request.param, lambda number, frame: None)
    yield request.param
    signal.signal(request.param, before)


def send(number: int) -> None:
    os.kill(os.getpid(), number)


def test_the_first_signal_raises_and_later_ones_do_not(number: int) -> None:
    end = unix_signals.RaiseOnce()
    with unix_signals.handled(end):
        with pytest.raises(KINDS[signal.Signals(number)]):
            send(number)
        for again in unix_signals.NUMBERS:
            send(again)
    assert end.number == number


def test_terminated_is_not_an_error() -> None:
    """`except Exception` around a client or a part must not swallow it."""
    assert not issubclass(unix_signals.Terminated, Exception)


def test_a_held_signal_takes_effect_after_the_section(number: int) -> None:
    steps = []

    @unix_signals.held()
    def write() -> None:
        send(number)
        send(number)
        steps.append("written")

    with unix_signals.handled(unix_signals.RaiseOnce()), pytest.raises(KINDS[signal.Signals(number)]):
        write()
    assert steps == ["written"]


def test_an_error_of_the_section_takes_precedence_and_the_handlers_are_restored(number: int) -> None:
    end = unix_signals.RaiseOnce()

    @unix_signals.held()
    def write() -> None:
        send(number)
        raise OSError("full")

    with unix_signals.handled(end):
        with pytest.raises(OSError, match="full"):
            write()
        assert signal.getsignal(number) is end


def test_an_ignored_signal_stays_ignored(number: int) -> None:
    signal.signal(number, signal.SIG_IGN)
    with unix_signals.handled(unix_signals.RaiseOnce()), unix_signals.held():
        send(number)
    assert signal.getsignal(number) is signal.SIG_IGN


def test_another_thread_changes_nothing() -> None:
    """Flower's simulation runs the server in a thread, where Python allows no handlers."""
    before = [signal.getsignal(number) for number in unix_signals.NUMBERS]
    seen: list[object] = []

    def work() -> None:
        with unix_signals.handled(unix_signals.RaiseOnce()), unix_signals.held():
            seen.extend(signal.getsignal(number) for number in unix_signals.NUMBERS)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == before


def test_a_signal_of_another_thread_interrupts_a_wait_of_the_main_thread(number: int) -> None:
    """As Flower's monitor raises it; without `waking` this waits for the whole time."""
    started = time.monotonic()
    never = threading.Event()
    thread = threading.Timer(0.2, signal.raise_signal, [number])
    thread.start()
    with (
        pytest.raises(unix_signals.STOPPED),
        unix_signals.handled(unix_signals.RaiseOnce()),
        unix_signals.waking(),
    ):
        never.wait(20.0)
    thread.join()
    assert time.monotonic() - started < 10.0


def test_after_waking_signals_are_as_before() -> None:
    before = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(before)
    with unix_signals.handled(unix_signals.RaiseOnce()), unix_signals.waking():
        pass
    assert signal.set_wakeup_fd(-1) == before
    signal.set_wakeup_fd(before)
