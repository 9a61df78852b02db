"""What a deployed round costs: a SuperLink and two SuperNodes on loopback, with `fedstride node` and Flower's own.

The work of a round is close to nothing (three mini-batches of 20 images, a network of 159,010 weights), so what is
measured is the time around it. The floor is the median round with `flower-supernode`, which is measured next to
it with the same SuperLink program: a ratio of 0.1 means ten times as fast. One case for a SuperLink that keeps its
state in memory, one for a file, which survives its restart, and one with TLS and registered keys in addition, as
in a real deployment. The transport is that of the installed Flower: gRPC with 1.39, HTTP from 1.40 on.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks import Measured
from fedstride.flower.for_nodes.connecting import uses_http
from lab.deployment.certificates import make
from lab.flower.flower_command import environment, free_port
from server_app.file_names import METRICS
from server_app.records.line_files import read_lines

FLOOR = "the median round with flower-supernode"


class Case(NamedTuple):
    """How the SuperLink is started."""

    in_file: bool  # where its state is
    secure: bool  # with TLS and registered keys


CASES = {
    "state in memory": Case(in_file=False, secure=False),
    "state in a file": Case(in_file=True, secure=False),
    "state in a file, TLS and keys": Case(in_file=True, secure=True),
}
AS_ROOT = ["--allow-root"] if os.geteuid() == 0 else []
WARM, STOCK = (sys.executable, "-m", "fedstride", "node", *AS_ROOT), ("flower-supernode",)
ROUNDS = {WARM: 21, STOCK: 4}  # the first one, in which the data are prepared, does not count
WORK = ("model=mlp", "client.local_steps=3", "client.batch_size=20", "client.device=cpu", "node_ids=any")
START_SECONDS, STOP_SECONDS = 120.0, 15.0


def timings(repeats: int, only: str = "") -> Iterator[Measured]:
    """The two programs in turn, `repeats` times."""
    for _ in range(repeats):
        for name, case in CASES.items():
            if only in name:
                floor, seconds = (statistics.median(rounds(program, case)) for program in (STOCK, WARM))
                yield Measured(name, seconds, floor)


def rounds(program: Sequence[str], case: Case) -> list[float]:
    """The seconds of each round but the first, with two nodes of this program."""
    control, fleet = (f"127.0.0.1:{free_port()}" for _ in range(2))
    count = ROUNDS[tuple(program)]
    with tempfile.TemporaryDirectory(prefix="fedstride-node-") as temporary, contextlib.ExitStack() as stack:
        root = Path(temporary)
        keys = root / "keys"
        if case.secure:
            make(keys, names=["localhost"], addresses=["127.0.0.1"], nodes=["0", "1"])
        trust = ["--root-certificates", str(keys / "ca.crt")] if case.secure else ["--insecure"]
        start(stack, root / "superlink", superlink(case, control, fleet, keys))
        until(lambda: answers(control, case))
        desk = [sys.executable, "-m", "fedstride"]
        at = ["--address", control, *trust]
        if case.secure:
            call([*desk, "register", *at, str(keys / "0.pub"), str(keys / "1.pub")], root / "desk")
        for k in range(2):
            node = [*program, *trust, "--superlink", control if uses_http() else fleet]
            node += ["--auth-supernode-private-key", str(keys / str(k))] if case.secure else []
            node += ["--port", str(free_port())] if program == STOCK else []
            start(stack, root / f"node{k}", [*node, "--node-config", f"partition-id={k} num-partitions=2"])
        call([*desk, "submit", *at, "clients=2", f"rounds={count}", *WORK, "name=timed"], root / "desk")
        rows = read_lines(root / "superlink/runs/timed" / METRICS)
    return [sum(row[f"seconds/{part}"] for part in ("train", "aggregate", "evaluate")) for row in rows[2:]]


def superlink(case: Case, control: str, fleet: str, keys: Path) -> list[str]:
    """The command of a SuperLink at these addresses."""
    command = ["flower-superlink", "--host", "127.0.0.1", "--port", control.rpartition(":")[2]]
    command += [] if uses_http() else ["--fleet-api-address", fleet]
    command += ["--database", "state.db"] if case.in_file else []
    if not case.secure:
        return [*command, "--insecure"]
    files = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.crt", "--ssl-keyfile": "server.key"}
    tls = [text for option, name in files.items() for text in (option, str(keys / name))]
    return [*command, *tls, "--enable-supernode-auth"]


def call(command: Sequence[str], home: Path) -> None:
    """Run a command until it ends. Raises CalledProcessError if it fails."""
    subprocess.run(command, env=environment(folder(home)), stdout=subprocess.DEVNULL, check=True)


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


def answers(address: str, case: Case) -> bool:
    """Whether a SuperLink answers here. Its certificate is checked by the nodes."""
    url = f"{'https' if case.secure else 'http'}://{address}/health"
    trusting = ssl._create_unverified_context()
    with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2, context=trusting):
        return True
    return False


def until(true: Callable[[], bool]) -> None:
    """Wait until this is true. Raises TimeoutError after START_SECONDS."""
    deadline = time.monotonic() + START_SECONDS
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing answered within {START_SECONDS:g} s")
        time.sleep(0.2)
