"""Ctrl-C ends a run after the current client, or is ignored; a second one or SIGTERM ends it immediately."""

from __future__ import annotations

import os
import signal

import pytest

from fedstride.processes import unix_signals
from fedstride.processes.unix_signals import Terminated
from lab.engine.interrupt import InterruptHandler


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.usefixtures("ctrl_c")
def test_the_run_ends_after_the_current_client() -> None:
    with InterruptHandler() as interrupt:
        interrupt.replied(1, 1, 3)
        press()
        with pytest.raises(KeyboardInterrupt):
            interrupt.replied(1, 2, 3)
        with pytest.raises(KeyboardInterrupt):
            interrupt.round_done(None)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_ends_immediately() -> None:
    with InterruptHandler():
        press()
        with pytest.raises(KeyboardInterrupt):
            press()


@pytest.mark.usefixtures("ctrl_c")
def test_an_ignored_sigint_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with InterruptHandler() as interrupt:
        press()
        press()
        interrupt.replied(1, 1, 3)
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_ends_immediately_and_only_once() -> None:
    """A process manager that repeats it must not interrupt the cleaning up."""
    before = signal.getsignal(signal.SIGTERM)
    with InterruptHandler():
        with pytest.raises(Terminated):
            terminate()
        terminate()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.usefixtures("ctrl_c")
def test_signals_after_the_first_one_are_ignored_while_the_run_closes() -> None:
    with InterruptHandler() as interrupt:
        press()
        with pytest.raises(KeyboardInterrupt):
            interrupt.replied(1, 1, 3)
        press()
        terminate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_each_signal_but_ctrl_c_terminates(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    signal.signal(number, signal.SIG_DFL)
    try:
        with InterruptHandler(), pytest.raises(Terminated):
            os.kill(os.getpid(), number)
    finally:
        signal.signal(number, before)


def test_a_run_outlasts_its_terminal() -> None:
    """Also inside a handler that would end it: a signal that is ignored stays so."""
    before = signal.getsignal(signal.SIGHUP)
    try:
        unix_signals.outlast_the_terminal()
        with InterruptHandler() as interrupt:
            os.kill(os.getpid(), signal.SIGHUP)
            interrupt.replied(1, 1, 3)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
