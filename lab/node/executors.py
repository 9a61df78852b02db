"""The SuperNode's side of warm executors: has a process started for each message, and watches over it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fedstride.pauses import Growing

from . import seams
from .orders import Ended, Kill, Line, Ready, Start, pair

EXIT_SECONDS = 10.0
"""A process whose task has its result, or has failed, is killed if it is still there after so many seconds."""

CHECK_SECONDS = 1.0  # between two looks at the tasks and the running processes
STOP_SECONDS = 5.0  # for the template to end all processes, when the SuperNode ends


@dataclass
class _Running:
    """The process of a message."""

    task: seams.Task
    deadline: float  # when it is killed
    ended: float | None = None  # when its task was seen to have ended


class Executors:
    """Starts a process for each message as a fork of the template, and waits for messages and replies.

    `limit`: the seconds that a message may take; then its process is killed, and the reply is an error. If the
    template cannot start, Flower's own program takes its place, with one warning.
    """

    def __init__(self, state: seams.State, limit: float, warn: Callable[[str], None]) -> None:
        self._state = state
        self._limit = limit
        self._warn = warn
        self._waits = {
            seconds: Growing(shortest, seconds)
            for shortest, seconds in ((0.03, seams.IDLE_SECONDS), (0.01, seams.REPLY_SECONDS))
        }
        self._last = 0.0  # what the last wait was for, a key of `_waits`
        self._template: subprocess.Popen[bytes] | None = None
        self._line: Line | None = None  # to the template
        self._is_ready = False
        self._running: dict[int, _Running] = {}
        self._started = 0
        self._checked = 0.0

    # ------------------------------------------------------------ called by Flower's loop

    def start(self, command: Sequence[str]) -> None:
        """Start the template, instead of this command for Flower's own program."""
        self._command, self._place = command, seams.place(command)
        if self._place.installs:
            self._start_cold("--allow-runtime-dependency-installation gives each of them its own packages")
        else:
            self._start_template()

    def wait(self, seconds: float) -> None:
        """Wait for the next message or for the reply, instead of sleeping so long; start and end processes."""
        growing = self._waits[seconds]
        # A reply is waited for and nobody works on it: there is a new task. Otherwise there hardly ever is one.
        is_new = seconds == seams.REPLY_SECONDS and not self._running
        started = (is_new or time.monotonic() >= self._checked + CHECK_SECONDS) and self._look()
        if started or seconds != self._last:
            growing.restart()
        self._last = seconds
        until = time.monotonic() + growing.pause()
        while (left := until - time.monotonic()) > 0:
            if self._line is None:
                time.sleep(left)
            elif self._line.arrives(left) and self._handle(self._line):
                return

    def close(self) -> None:
        """End all processes."""
        if self._line is None or self._template is None:
            return  # Flower's own program ends by itself
        self._line.close()
        if not self._is_ready:
            self._template.kill()  # it imports, and has no forks yet
        try:
            self._template.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._template.kill()
            self._template.wait()

    # ------------------------------------------------------------ the template

    def _start_template(self) -> None:
        ours, theirs = pair()
        command = [sys.executable, "-P", "-m", f"{__package__}.template", str(theirs.fileno())]
        with theirs:
            self._template = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        self._line, self._is_ready = Line(ours), False

    def _start_cold(self, reason: str) -> None:
        self._warn(f"every message starts a new process, as with flower-supernode: {reason}")
        self._line = None
        subprocess.Popen(self._command)

    def _handle(self, line: Line) -> bool:
        """Handle one message of the template; whether there may be something new for Flower's loop."""
        order = line.receive()
        if isinstance(order, Ready):
            self._is_ready = True
            if order.problem:
                self._warn(f"this project's ClientApp cannot be imported here: {order.problem}")
        elif isinstance(order, Ended):
            running = self._running.pop(order.number)
            return self._state.fail(running.task, f"its process ended with {order.reason}")
        else:
            self._lost(line)
        return True

    def _lost(self, line: Line) -> None:
        """The template has ended, and all its forks with it. Start it again, unless it could not even start."""
        assert self._template is not None
        line.close()
        code = self._template.wait()
        for running in self._running.values():
            self._state.fail(running.task, "the process from which it was forked has ended")
        self._running.clear()
        if self._is_ready:
            self._warn(f"the process from which executors are forked has ended ({code}), and is started again")
            self._start_template()
        else:
            self._start_cold(f"the process from which they would be forked did not start ({code})")

    # ------------------------------------------------------------ the processes

    def _look(self) -> bool:
        """Start processes for new tasks, and kill those that must end; whether one was started."""
        if self._line is None or not self._is_ready:
            return False
        self._checked = now = time.monotonic()
        for number, running in self._running.items():
            if running.ended is None and self._state.has_ended(running.task):
                running.ended = now
            if now > running.deadline or (running.ended is not None and now > running.ended + EXIT_SECONDS):
                self._line.send(Kill(number))
        before = self._started
        while (task := self._state.acquire()) is not None:
            self._started += 1
            if task.type == seams.CLIENT_APP:
                deadline = now + min(self._limit, self._state.longest(task))
                self._running[self._started] = _Running(task, deadline)
                self._line.send(Start(self._started, task.token, self._place))
            else:
                seams.start_cold(task, self._place)
        return self._started > before
