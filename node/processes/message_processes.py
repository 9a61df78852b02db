"""The node's side of the processes of messages: has one started for each message, and watches over it.

What comes from such a process is bytes under bounds (`frames.py`); nothing of it is executed or unpacked here.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from fedstride.errors import FedstrideError, RunError

from ..policy.file_access import NOWHERE, ProcessFolders
from ..removal import left_beside
from .environment_variables import environment
from .frames import (
    RECEIVED_AT_ONCE,
    UNTRUSTED,
    Answer,
    Bounds,
    FrameError,
    Reader,
    Request,
    Writer,
    fields_of_request,
)
from .internal_messages import Channel, Kill, ProcessEnded, Ready, Remove, Start, pair
from .output import Output

EXIT_SECONDS = 10.0
"""A process that has answered, or closed its connection, is killed if it is still there after so many seconds."""

GRACE_SECONDS = 1.0
"""A process that has answered is killed if it is still there so long after the next message has come."""

MOST_SECONDS = 30 * 86400.0  # of a message without a limit, for its supervisor

CHECK_SECONDS = 1.0  # between two looks at processes that have answered and are still there
KILL_SECONDS = 5.0  # for the template to say that a killed process has ended
STOP_SECONDS = 5.0  # for the template to end all processes, when the node ends


class DiedError(FedstrideError):
    """A process gave no answer. The text says how it ended, on one line."""


@dataclass
class _Running:
    """The process of a message."""

    number: int
    deadline: float  # when it is killed
    output: Output | None = None  # what its app writes
    ended: str = ""  # how


class Processes:
    """Starts a process for each message as a fork of the template. One message at a time.

    `show`: gets each line that the template or an app writes.
    `limit`: the seconds that a message may take; then its process is killed. `pass_environment`: the names of more
    variables that the processes get. `bounds`: how much a process may answer. `scratch`: the folder of this
    node's scratch folders; what is beside it, from an earlier process, is removed.
    """

    def __init__(
        self,
        limit: float,
        warn: Callable[[str], None],
        show: Callable[[str], None],
        pass_environment: Iterable[str] = (),
        bounds: Bounds = UNTRUSTED,
        scratch: Path | None = None,
    ) -> None:
        self._limit = limit
        self._warn = warn
        self._show = show
        self._environment = environment(os.environ, pass_environment)
        self._bounds = bounds
        self._scratch = scratch
        self._buffer = memoryview(bytearray(RECEIVED_AT_ONCE))
        self._template: subprocess.Popen[bytes] | None = None
        self._output: Output | None = None  # of the template
        self._line: Channel | None = None  # to the template
        self._is_ready = False
        self._running: dict[int, _Running] = {}
        self._started = 0
        self._checked = 0.0

    def start(self) -> None:
        """Start the template. It is ready after some seconds, which this does not wait for."""
        ours, theirs = pair()
        output, written = os.pipe()
        command = [sys.executable, "-P", "-m", f"{__package__}.warm_template", str(theirs.fileno())]
        try:
            with theirs:
                self._template = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=written,
                    stderr=written,
                    pass_fds=[theirs.fileno()],
                    env=self._environment,
                    start_new_session=True,  # so that an app cannot type into the node's terminal
                )
        finally:
            os.close(written)
        self._line, self._is_ready = Channel(ours), False
        self._output = Output(output, lambda line: self._show(f"the template: {line}"))
        if self._scratch is not None and (left := left_beside(self._scratch)):
            self._line.send(Remove(str(self._scratch.parent), left))

    def answer(
        self,
        request: Request,
        deadline_seconds: float,
        place: ProcessFolders = NOWHERE,
        show: Callable[[str], None] | None = None,
    ) -> Answer:
        """What a new process makes of a message, within the limit and so many seconds.

        `place`: where it works. `show`: gets each line that its app writes. Raises DiedError if it gives no
        answer, and RunError if no process can be started at all.
        """
        deadline = time.monotonic() + deadline_seconds
        try:
            settings = request.settings | {"place": place.settings}
            writer = Writer(fields_of_request(request._replace(settings=settings)))
        except FrameError as error:
            raise DiedError(str(error)) from error
        line = self._ready_line(deadline)
        self._end_answered(line)
        if place.old:
            line.send(Remove(place.cleared, list(place.old)))
        self._started += 1
        output, written = os.pipe()
        running = _Running(self._started, min(deadline, time.monotonic() + self._limit))
        running.output = Output(output, show or self._show)
        self._running[running.number] = running
        ours, theirs = socket.socketpair()
        try:
            with ours:
                try:
                    seconds = min(running.deadline - time.monotonic(), MOST_SECONDS) + EXIT_SECONDS
                    line.send(Start(running.number, place.watched, seconds), theirs.fileno(), written)
                finally:
                    theirs.close()
                    os.close(written)
                return self._exchange(running, ours, writer)
        except FrameError as error:
            self._kill(running)
            raise DiedError(str(error)) from error
        except BaseException:
            running.deadline = 0.0  # it is ended by the next `look`, or by `close`
            raise

    def look(self) -> None:
        """Kill processes that should have ended. To be called every few seconds while there is no message."""
        self._handle_all()
        self._read_outputs()
        self._checked = now = time.monotonic()
        for number, running in self._running.items():
            if now > running.deadline and self._line is not None:
                self._line.send(Kill(number))

    def close(self) -> None:
        """End all processes."""
        if self._line is None or self._template is None:
            return
        self._line.close()
        if not self._is_ready:
            self._template.kill()  # it imports, and has no forks yet
        try:
            self._template.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._template.kill()
            self._template.wait()
        self._read_outputs()
        self._close_outputs()
        self._line = self._template = None

    # ------------------------------------------------------------ what apps write

    def _read_outputs(self) -> None:
        for output in self._outputs():
            output.read()

    def _close_outputs(self) -> None:
        for output in self._outputs():
            output.close()

    def _outputs(self) -> list[Output]:
        outputs = [self._output, *(running.output for running in self._running.values())]
        return [output for output in outputs if output is not None]

    # ------------------------------------------------------------ one message

    def _exchange(self, running: _Running, connected: socket.socket, writer: Writer) -> Answer:
        """Send the message and read the answer, whichever is possible, until the answer is complete."""
        connected.setblocking(False)
        reader, begun, deadline = Reader(self._bounds), time.monotonic(), running.deadline
        sending, receiving = True, True
        while True:
            ended = running.ended  # asked first: all that it has sent is there by then
            size = self._receive(connected, reader) if receiving else None
            if reader.complete:
                running.deadline = time.monotonic() + EXIT_SECONDS
                return reader.answer()
            if ended and not size:
                raise DiedError(ended)
            if size == 0:  # it ends, or its app has closed the connection
                sending = receiving = False
                running.deadline = min(deadline, time.monotonic() + EXIT_SECONDS)
            if time.monotonic() > running.deadline:
                self._kill(running)
                if receiving:
                    raise DiedError(f"killed, as the message took more than {round(deadline - begun, 1):g} s")
                raise DiedError(f"killed, as it closed its connection without an answer {EXIT_SECONDS:g} s before")
            if sending:
                sending = not _write(writer, connected)
            if not size:
                self._wait(running, connected, sending, receiving)

    def _receive(self, connected: socket.socket, reader: Reader) -> int | None:
        """Read what is there. The number of bytes: 0 if the other end is closed, None if nothing is there."""
        try:
            size = connected.recv_into(self._buffer)
        except BlockingIOError:
            return None
        except ConnectionResetError:  # it is closed, and has not read everything
            return 0
        reader.feed(self._buffer[:size])
        return size

    def _wait(self, running: _Running, connected: socket.socket, sending: bool, receiving: bool) -> None:
        """Wait until the process reads or writes, or until there is something to do for others."""
        if running.ended or self._line is None:
            return
        poll = select.poll()
        poll.register(self._line, select.POLLIN)
        for output in self._outputs():
            if output.fileno() >= 0:
                poll.register(output, select.POLLIN)
        if receiving:
            poll.register(connected, select.POLLIN | (select.POLLOUT if sending else 0))
        left = running.deadline - time.monotonic()
        poll.poll(1000 * max(0.0, min(left, CHECK_SECONDS)))
        self._handle_all()
        self._read_outputs()
        if time.monotonic() > self._checked + CHECK_SECONDS:
            self.look()

    def _end_answered(self, line: Channel) -> None:
        """End the processes of earlier messages, so that they use nothing beside the next one."""
        deadline = time.monotonic() + GRACE_SECONDS
        while self._running and line.arrives(deadline - time.monotonic()):
            self._handle()
        for running in list(self._running.values()):
            self._kill(running)

    def _kill(self, running: _Running) -> None:
        """End a process, and wait for its end, so that it does not work beside the next one."""
        running.deadline = 0.0
        if self._line is None or running.ended or not self._line.send(Kill(running.number)):
            return
        deadline = time.monotonic() + KILL_SECONDS
        while not running.ended and self._line.arrives(deadline - time.monotonic()):
            self._handle()

    # ------------------------------------------------------------ the template

    def _ready_line(self, deadline: float) -> Channel:
        """The line to a template that is ready."""
        if self._line is None:
            self.start()
        self._handle_all()
        assert self._line is not None
        while not self._is_ready:
            if not self._line.arrives(min(deadline - time.monotonic(), CHECK_SECONDS)):
                if time.monotonic() > deadline:
                    raise DiedError("no process could be started in the time of the message")
                continue
            self._handle()
        return self._line

    def _handle_all(self) -> None:
        while self._line is not None and self._line.arrives(0):
            self._handle()

    def _handle(self) -> None:
        """Handle one message of the template, or its end."""
        assert self._line is not None
        received = self._line.receive()
        if received is None:
            self._lost()
            return
        order, _ = received
        if isinstance(order, Ready):
            self._is_ready = True
            if order.problem:
                self._warn(f"this project's ClientApp cannot be imported here: {order.problem}")
        elif isinstance(order, ProcessEnded):
            running = self._running.pop(order.number)
            running.ended = order.reason
            if running.output is not None:
                running.output.close()

    def _lost(self) -> None:
        """The template has ended, and all its forks with it. Start it again, unless it could not even start."""
        assert self._template is not None and self._line is not None
        self._line.close()
        code = self._template.wait()
        for running in self._running.values():
            running.ended = "the process from which it was forked has ended"
        self._read_outputs()
        self._close_outputs()
        self._running.clear()
        self._line = self._template = None
        if not self._is_ready:
            raise RunError(f"the process from which those of messages are forked did not start ({code})")
        self._warn(f"the process from which those of messages are forked has ended ({code}), and is started again")
        self.start()


def _write(writer: Writer, connected: socket.socket) -> bool:
    """Send what the process takes; whether nothing more is to be sent."""
    try:
        return writer.write(connected)
    except (BrokenPipeError, ConnectionResetError):  # it has closed its end, or has ended
        return True
