"""Runs a command and observes it: seconds to the first round's result and to the end, and memory."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from fedstride.errors import RunError
from fedstride.messages import wire
from server_app.file_names import CLIENTS, METRICS
from server_app.records.checkpoint import FOLDER as CHECKPOINTS
from server_app.records.line_files import read_lines

INTERVAL = 0.1
"""Seconds between two looks at the memory of the processes."""


class Watched(NamedTuple):
    """What was seen of a process from outside."""

    seconds: float  # from the start to the end
    results: list[float]  # from the start to each line of the file with results
    memory: int  # bytes: the largest sum over its processes of what each holds (shared pages are divided)


class Observed(NamedTuple):
    """What was seen of a command of fedstride, and what it wrote."""

    seconds: float  # from the start to the end
    first: float  # from the start to the end of the first round of the first run
    memory: int  # bytes, as in Watched; 0 if it was not looked at
    rows: list[dict[str, Any]]  # of metrics.jsonl, of the first run
    clients: list[list[dict[str, Any]]]  # of clients.jsonl, of each run


def fedstride(arguments: Sequence[str], *, memory: bool = False) -> Observed:
    """Run the command in an output folder of its own. `memory`: as in `watched`.

    Raises RunError, with the command's output, if it fails.
    """
    with tempfile.TemporaryDirectory(prefix="fedstride-benchmark-") as folder:
        command = [sys.executable, "-m", "fedstride", *arguments, f"out={folder}/runs"]
        seen = watched(command, Path(folder), METRICS, memory=memory)
        rows = read_lines(min(files(folder, METRICS)))
        clients = [read_lines(path) for path in files(folder, CLIENTS)]
        return Observed(seen.seconds, seen.results[1], seen.memory, rows, clients)


def watched(
    command: Sequence[str],
    folder: Path,
    name: str,
    *,
    memory: bool = False,
    limit: float = math.inf,
    **options: Any,
) -> Watched:
    """Run a command that writes a line for each result to a file `name` below the folder.

    Of several such files, the one that has a number of lines first counts. `memory`: look at it, which costs some
    time for each process. `limit`: seconds after which it is killed. `options` are those of Popen.
    Raises RunError, with the command's output, if it fails or takes longer.
    """
    with (folder / "said").open("w+") as said:
        started = time.perf_counter()
        with _process(command, said, **options) as process:
            looks = Memory(process.pid) if memory else None
            results: list[float] = []
            running = True
            while running and time.perf_counter() - started < limit:
                running = process.poll() is None  # before the look at the files, so that no line is missed
                lines = max(map(_lines, files(folder, name)), default=0)
                results += [time.perf_counter() - started] * (lines - len(results))
                if running:
                    time.sleep(0.01)  # the error of a result; a look at the files costs much less
            seconds = time.perf_counter() - started
            if looks:
                looks.stop()
        said.seek(0)
        if running or process.returncode:
            ended = f"took longer than {limit:g} s" if running else f"ended with code {process.returncode}"
            raise RunError(f"{' '.join(command)} {ended}:\n{said.read()}")
    return Watched(seconds, results, looks.most if looks else 0)


@contextmanager
def _process(command: Sequence[str], said: TextIO, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """This command in a session of its own; whatever is left of the session is killed at the end."""
    process = subprocess.Popen(
        command,
        stdout=said,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        **options,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def files(folder: str | Path, name: str) -> list[Path]:
    """The files with this name of all runs below the folder, without the copies next to their checkpoints.

    Folders that vanish meanwhile, as the temporary ones of a run do, are no error.
    """
    paths = []
    for place, below, names in os.walk(folder):
        # A look at thousands of clients' states, a hundred times a second, would slow down what is measured.
        below[:] = [subfolder for subfolder in below if subfolder not in (CHECKPOINTS, wire.CLIENT_STATES)]
        if name in names:
            paths.append(Path(place) / name)
    return sorted(paths)


def _lines(path: Path) -> int:
    with suppress(FileNotFoundError):
        return path.read_bytes().count(b"\n")
    return 0


class Memory:
    """The largest sum of the proportional set sizes of a process and all that come from it."""

    def __init__(self, pid: int) -> None:
        self.most = 0
        self._pid, self._ends = pid, threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End looking."""
        self._ends.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ends.wait(INTERVAL):
            self.most = max(self.most, sum(held(pid) for pid in _tree(self._pid)))


def _tree(pid: int) -> list[int]:
    """This process and its descendants."""
    with suppress(OSError):
        tasks = Path(f"/proc/{pid}/task").iterdir()
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
        return [pid, *(descendant for child in children for descendant in _tree(child))]
    return []


def held(pid: int) -> int:
    """Bytes that the process holds; pages that several share are divided among them."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return 1024 * int(line.split()[1])
    return 0
