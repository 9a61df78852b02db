"""SIGTERM, a closed terminal (SIGHUP) and Ctrl-C (SIGINT): what they raise, and sections that they do not divide.

SIGTERM and SIGHUP raise `Terminated`, as Ctrl-C raises KeyboardInterrupt, so that `finally` and `with` clean up.
Python delivers signals to the main thread only; elsewhere the functions here do nothing.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
EXIT_INTERRUPTED, EXIT_TERMINATED = 128 + signal.SIGINT, 128 + signal.SIGTERM

Handler = Callable[[int, FrameType | None], object]


class Terminated(BaseException):
    """The process got SIGTERM or SIGHUP. Not an Exception, so that no handler of errors takes it for an error."""


STOPPED = (KeyboardInterrupt, Terminated)
"""The exceptions of the two signals, for `except`."""


class RaiseOnce:
    """A handler that raises the exception of the first signal, and ignores later ones.

    A later signal would otherwise interrupt the cleaning up that the first one started.
    """

    def __init__(self) -> None:
        self.number: int | None = None  # the first signal

    def __call__(self, number: int, frame: FrameType | None = None) -> None:
        """Raise KeyboardInterrupt or Terminated, the first time only."""
        if self.number is None:
            self.number = number
            raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def outlast_the_terminal() -> None:
    """A closed terminal does not end this process, nor those that it starts from now on: as under nohup."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


@contextlib.contextmanager
def handled(handler: Handler) -> Iterator[None]:
    """Call `handler` for SIGINT, SIGTERM and SIGHUP inside; afterwards the handlers before it are active again.

    A signal that is ignored stays ignored: a shell script starts a process with `&` with SIGINT ignored, because
    Ctrl-C is then meant for another process.
    """
    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.getsignal(number) for number in NUMBERS}
    kept = {number: old for number, old in before.items() if old not in (signal.SIG_IGN, None)}
    for number in kept:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, old in kept.items():
            signal.signal(number, old)


@contextlib.contextmanager
def waking() -> Iterator[None]:
    """A signal that another thread raises inside also interrupts a lock on which the main thread waits.

    Flower's monitor raises SIGINT in its own thread when the SuperLink has ended. If the main thread waits for
    threads that send objects, it would notice only after they give up. Works once; put it inside `handled` with a
    handler that accepts the signal twice, such as `RaiseOnce`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    main, lock, active = threading.get_ident(), threading.Lock(), [True]
    reader, writer = socket.socketpair()
    writer.setblocking(False)

    def wake() -> None:
        number = reader.recv(1)  # Python writes the signal's number; nothing when the writer is closed
        with lock:
            if number and active:
                signal.pthread_kill(main, number[0])

    thread = threading.Thread(target=wake, daemon=True)
    before = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        with lock:
            active.clear()
        writer.close()
        thread.join()
        reader.close()


@contextlib.contextmanager
def held() -> Iterator[None]:
    """Signals that arrive inside take effect afterwards, so that files are written completely.

    Also a decorator: `@held()`. If the section raises an exception, that exception takes precedence.
    """
    arrived: list[int] = []
    with handled(lambda number, frame: arrived.append(number)):
        yield
    if arrived:
        signal.raise_signal(arrived[0])
