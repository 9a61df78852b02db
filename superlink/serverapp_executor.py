"""Starts a process for each ServerApp, and says so to Flower if one ends without a word of its own.

A ServerApp's process gets its task's token on its standard input. It knows no other secret: it is a new program,
whose environment has the variables of a list only.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from logging import INFO, WARNING
from typing import IO

from fedstride.errors import ConfigError, printable
from fedstride.flower.for_superlinks.waiting_serverapps import Tasks, TasksError, WaitingTask
from fedstride.flower.logs import log

from .serverapp import NOT_CONFINED
from .serverapp_access import Grant, ServerFolders

IDLE_SECONDS = 1.0
"""Between two looks for a ServerApp that waits; a look is made at once when a run was submitted."""

WITHOUT_A_WORD = "Task failed with unknown error"
"""Flower's words for a ServerApp that ended without a report; `lab.flower.run_status` knows them."""

MOST_LINE = 2**16
"""Bytes of a line of a ServerApp's output."""

PASSED = re.compile(
    "PATH|USER|LANG|LC_.*|TZ|OMP_NUM_THREADS|MKL_NUM_THREADS|OPENBLAS_NUM_THREADS|CUDA_VISIBLE_DEVICES|"
    "LD_LIBRARY_PATH|NUMBA_.*|FEDSTRIDE_(?!TOKEN_FILE|RUNS|CACHE).*|FLWR_(?!HOME|DATABASE).*|PYTHONUNBUFFERED|"
    "PYTHONDONTWRITEBYTECODE"
)
"""The variables of the SuperLink's environment that ServerApps get."""

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Address:
    """Where ServerApps reach the SuperLink, and the CA to trust; None: in plain text."""

    host: str
    port: int
    ca: bytes | None

    def text(self) -> str:
        """HOST:PORT."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Executor:
    """Starts the ServerApps of a SuperLink, each as `place` grants it."""

    def __init__(
        self, tasks: Tasks, address: Address, place: ServerFolders, has_task: Callable[[str], bool]
    ) -> None:
        self._tasks, self._address, self._place, self._has_task = tasks, address, place, has_task
        self._submitted = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()

    def look(self) -> None:
        """Look for a ServerApp to start at once."""
        self._submitted.set()

    async def serve(self) -> None:
        """Start what waits, for ever."""
        while True:
            self._submitted.clear()
            try:
                task = await self._tasks.next()
            except TasksError as error:  # a locked database
                log(WARNING, "no ServerApp can be started now: %s", error)
                task = None
            if task is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._submitted.wait(), IDLE_SECONDS)
                continue
            running = asyncio.create_task(self._run(task))
            self._running.add(running)
            running.add_done_callback(self._running.discard)

    async def _run(self, task: WaitingTask) -> None:
        try:
            grant = self._place.grant(task.run_id, task.config)
        except ConfigError as error:
            await self._fail(task, str(error))
            return
        await self._fail(task, await self._in_a_thread(task, grant))

    async def _in_a_thread(self, task: WaitingTask, grant: Grant) -> str:
        """Run the process until it ends; how it ended.

        In a thread, since asyncio would kill the process when this one ends. It ends itself then, with its files.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[str] = loop.create_future()

        def work() -> None:
            how = self._process(task, grant)
            self._place.release(grant)
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(ended.set_result, how)

        threading.Thread(target=work, name=f"run {task.run_id}", daemon=True).start()
        return await ended

    def _process(self, task: WaitingTask, grant: Grant) -> str:
        try:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", f"{__package__}.serverapp"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=grant.folder,
                env=environment(os.environ, self._place.passed) | grant.environment,
            )
        except OSError as error:
            return f"its ServerApp could not be started: {error}"
        assert process.stdin is not None and process.stdout is not None
        log(INFO, "run %s: its ServerApp is process %s", task.run_id, process.pid)
        with contextlib.suppress(BrokenPipeError), process.stdin as order:
            order.write(self._order(task, grant))
        _show(process.stdout, task.run_id)
        return _ended(process.wait())

    def _order(self, task: WaitingTask, grant: Grant) -> bytes:
        ca = self._address.ca
        order = {
            "token": task.token,
            "address": self._address.text(),
            "ca": None if ca is None else ca.decode("ascii"),
            "parent": os.getpid(),
            "scratch": str(grant.scratch),
            "read": [str(path) for path in grant.read],
            "write": [str(path) for path in grant.write],
            "ports": [self._address.port, *grant.ports],
            "devices": [str(path) for path in self._place.devices],
            "confine": self._place.confined,
        }
        return json.dumps(order).encode()

    async def _fail(self, task: WaitingTask, details: str) -> None:
        with contextlib.suppress(TasksError):
            if await asyncio.to_thread(self._has_task, task.token):
                log(WARNING, "run %s: %s", task.run_id, details)
                await self._tasks.fail(task.token, details)


def _ended(status: int) -> str:
    if status == NOT_CONFINED:
        return "its ServerApp could not be confined, so it was not started; the SuperLink's log says why"
    return f"{WITHOUT_A_WORD}: {f'exit code {status}' if status >= 0 else f'signal {-status}'}"


def _show(output: IO[bytes], run_id: int) -> None:
    """Print what a ServerApp prints, line by line, without what a terminal would act on."""
    for line in iter(lambda: output.readline(MOST_LINE), b""):
        text = COLOURS.sub("", line.decode(errors="replace")).rstrip()
        print(f"run {run_id}: {printable(text)}", file=sys.stderr, flush=True)


def environment(variables: Mapping[str, str], passed: tuple[str, ...]) -> dict[str, str]:
    """The variables that ServerApps get: those of the list, and those that the operator names."""
    return {name: value for name, value in variables.items() if PASSED.fullmatch(name) or name in passed}
