"""A run in Flower's simulation, with a SuperLink of its own that is gone afterwards.

Knows processes, ports and Flower's command line; does not know what is trained. `flwr run` by itself
uses whatever SuperLink already listens, installs dependencies anew for every run, puts files where that
SuperLink was started, returns 0 when the run failed and leaves the SuperLink behind (Flower 1.39).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedstride.errors import ConfigError, RunError
from server_app.config.overrides import quote, with_parts
from server_app.config.schema import Config
from server_app.folder import default_name, runs_dir

from ..engine.live import HEAD, line
from ..engine.local import STATES
from ..results.runs import read_rows
from .bundle import app_folder
from .command import (
    Connection,
    end_marked,
    environment,
    free_port,
    reason_in,
    write_connection,
    write_run_config,
)

CONNECTION = "fedstride"
START_SECONDS = 90.0
STOP_SECONDS = 10.0
MARK = "FEDSTRIDE_SIMULATION"  # environment variable by which all processes of a run are found


@dataclass(frozen=True)
class Simulated:
    """How a simulated run ended."""

    completed: bool
    folder: Path
    accuracy: float = float("nan")
    reason: str = ""


def run_simulation(
    config: Config, overrides: Sequence[str], *, show: Callable[[str], None], verbose: bool = False
) -> Simulated:
    """Run the app with these Hydra overrides in Flower's simulation; `config` is what they compose to.

    `show` gets a line a round; with `verbose` Flower's log goes to standard error as it comes. The log
    is kept in the run's folder as `flower.log`. Raises RunError where Flower cannot be started.
    """
    folder = _free_folder(config)
    before = _status(folder)  # of a run that goes on: it says how it ended last time
    with contextlib.ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix="fedstride-"))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        env = _environment(home, folder, config)
        stack.callback(end_marked, MARK, env[MARK])
        write_connection(home, Connection(CONNECTION, stack.enter_context(_superlink(env, home))))
        app = stack.enter_context(app_folder(config.parts))
        log = _follow(_flwr_run_command(app, home, config, overrides, folder), env, folder, show, verbose)
    if folder.is_dir():
        (folder / "flower.log").write_text(log, encoding="utf-8")
    return _judge(folder, log, before)


# ---------------------------------------------------------------- before


def _free_folder(config: Config) -> Path:
    """The folder that the run will make; named here, so that it is known and where the user stands.

    A run that goes on stays where it is.
    """
    if config.resume is not None:
        return Path(config.resume)
    root = runs_dir(config)
    name = config.name or default_name(config)
    if config.name is not None and (root / name).exists():
        raise ConfigError(f"name = {name!r} is taken: {root / name} exists and is not overwritten; choose another")
    candidates = (root / (name if number == 1 else f"{name}-{number}") for number in itertools.count(1))
    return next(folder for folder in candidates if not folder.exists())


def _environment(home: Path, folder: Path, config: Config) -> dict[str, str]:
    own = {MARK: uuid.uuid4().hex, "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(home)}
    own["FEDSTRIDE_STATE"] = str(folder / STATES)  # what clients keep lies in the run's folder, as at the desk
    if config.parts is not None:
        own["FEDSTRIDE_PARTS"] = str(Path(config.parts).parent)
    return environment(home) | own


@contextlib.contextmanager
def _superlink(env: dict[str, str], home: Path) -> Iterator[str]:
    """A SuperLink on a free loopback port, ready to take a run; its address."""
    port = free_port()
    command = [
        "flower-superlink",
        "--simulation",
        "--insecure",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--disable-runtime-dependency-installation",
    ]
    with (home / "superlink.log").open("wb") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        _wait_until_ready(process, port, home / "superlink.log")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2).close()
            return
        except OSError:  # not yet; URLError is one
            time.sleep(0.2)
    tail = log.read_text(errors="replace").strip().splitlines()[-5:]
    raise RunError(f"Flower's SuperLink did not start on port {port}: {' | '.join(tail)}")


# ---------------------------------------------------------------- the run


def _flwr_run_command(app: Path, home: Path, config: Config, overrides: Sequence[str], folder: Path) -> list[str]:
    place = [f"name={quote(folder.name)}", f"out={quote(str(folder.parent))}"]
    if config.resume is not None:
        place = [f"resume={quote(config.resume)}"]  # the last one counts: this is absolute
    named = [*with_parts(overrides, config.parts), *place]
    nodes = f"num-supernodes={config.clients} client-resources-num-cpus=1 init-args-log-to-driver=false"
    run_config = str(write_run_config(home, named))
    return ["flwr", "run", str(app), CONNECTION, "--stream", "--federation-config", nodes, "-c", run_config]


def _follow(
    command: Sequence[str], env: dict[str, str], folder: Path, show: Callable[[str], None], verbose: bool
) -> str:
    """Run the command to its end, showing a line for each round that is over; its whole output."""
    shown = 0
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        position = 0
        try:
            while True:
                ended = process.poll() is not None
                if verbose:
                    log.seek(position)
                    sys.stderr.write(log.read())
                    position = log.tell()
                rows = read_rows(folder)
                for row in rows[shown:]:
                    if not shown:
                        show(HEAD)
                    show(line(row))
                    shown += 1
                if ended:
                    break
                time.sleep(0.2)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        log.seek(0)
        return log.read()


# ---------------------------------------------------------------- after


def _status(folder: Path) -> str:
    """What the run's folder says of how it ended; empty where it says nothing."""
    path = folder / "status.json"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _judge(folder: Path, log: str, before: str) -> Simulated:
    """How the run ended, from its own folder: for Flower a run that trained nothing is completed too."""
    status = _status(folder)
    if status == before:
        return Simulated(False, folder, reason=reason_in(log))
    told = json.loads(status)
    if told["state"] != "completed":
        return Simulated(False, folder, reason=told.get("reason") or reason_in(log))
    return Simulated(True, folder, accuracy=told["final"]["test/accuracy"])
