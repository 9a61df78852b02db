"""What a deployed round costs: a SuperLink and two SuperNodes on loopback, with `fedstride node` and Flower's own.

The work of a round is close to nothing (three mini-batches of 20 images, a network of 159,010 weights), so what is
measured is the time around it. The floor is the median round with `flower-supernode`, which is measured next to
it with the same SuperLink program: a ratio of 0.1 means ten times as fast. One name for a SuperLink that keeps its
state in a file, which survives its restart, and one for a SuperLink that keeps it in memory.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from benchmarks import Measured
from fedstride.flower.connecting import uses_http
from lab.flower.command import environment, free_port
from server_app.lines import read_lines

FLOOR = "the median round with flower-supernode"

STATES = {"state in a file": ("--database", "state.db"), "state in memory": ()}
WARM, STOCK = (sys.executable, "-m", "fedstride", "node"), ("flower-supernode",)
ROUNDS = {WARM: 21, STOCK: 4}  # the first one, in which the data are prepared, does not count
WORK = ("model=mlp", "client.local_steps=3", "client.batch_size=20", "client.device=cpu", "node_ids=any")
START_SECONDS, STOP_SECONDS = 120.0, 15.0


def timings(repeats: int, only: str = "") -> Iterator[Measured]:
    """The two programs in turn, `repeats` times."""
    for _ in range(repeats):
        for name, options in STATES.items():
            if only in name:
                floor, seconds = (statistics.median(rounds(program, options)) for program in (STOCK, WARM))
                yield Measured(name, seconds, floor)


def rounds(program: Sequence[str], superlink_options: Sequence[str] = ()) -> list[float]:
    """The seconds of each round but the first, with two nodes of this program."""
    control, fleet = (f"127.0.0.1:{free_port()}" for _ in range(2))
    count = ROUNDS[tuple(program)]
    with tempfile.TemporaryDirectory(prefix="fedstride-node-") as temporary, contextlib.ExitStack() as stack:
        root = Path(temporary)
        place = ["--host", "127.0.0.1", "--port", control.rpartition(":")[2], "--fleet-api-address", fleet]
        start(stack, root / "superlink", ["flower-superlink", "--insecure", *place, *superlink_options])
        until(lambda: answers(control))
        for k in range(2):
            node = [*program, "--insecure", "--superlink", control if uses_http() else fleet]
            port = ["--port", str(free_port())] if program == STOCK else []
            start(stack, root / f"node{k}", [*node, *port, "--node-config", f"partition-id={k} num-partitions=2"])
        submit = [sys.executable, "-m", "fedstride", "submit", "--address", control, "--insecure", "clients=2"]
        subprocess.run(
            [*submit, f"rounds={count}", *WORK, "name=timed"],
            env=environment(folder(root / "desk")),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        rows = read_lines(root / "superlink/runs/timed/metrics.jsonl")
    return [sum(row[f"seconds/{part}"] for part in ("train", "aggregate", "evaluate")) for row in rows[2:]]


def start(stack: contextlib.ExitStack, where: Path, command: Sequence[str]) -> None:
    """Start a process in its own folder, which is its FLWR_HOME; it ends with the stack."""
    env = environment(folder(where))
    for name in ("FEDSTRIDE_RUNS", "FEDSTRIDE_STATE"):
        env.pop(name, None)
    env["FEDSTRIDE_CACHE"] = str(where.parent / "cache")
    env["XDG_STATE_HOME"] = str(where)
    log = stack.enter_context((where / "log").open("wb"))
    process = subprocess.Popen(command, cwd=where, env=env, stdout=log, stderr=log)
    stack.callback(stop, process)


def stop(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process, and kill it if it takes too long."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def folder(path: Path) -> Path:
    """The folder, made if it does not exist."""
    path.mkdir(parents=True, exist_ok=True)
    return path


def answers(address: str) -> bool:
    """Whether a SuperLink answers here."""
    with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{address}/health", timeout=2):
        return True
    return False


def until(true: Callable[[], bool]) -> None:
    """Wait until this is true. Raises TimeoutError after START_SECONDS."""
    deadline = time.monotonic() + START_SECONDS
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing answered within {START_SECONDS:g} s")
        time.sleep(0.2)
