"""Runs the app in Flower's simulation: a program that is started and ended for this run, without a SuperLink.

The reason (Flower 1.39 to 1.42): `flwr run` uses any SuperLink that already listens, so that every user of this
machine can submit an app to it; it installs the dependencies again for every run, writes files to the folder in
which that SuperLink was started, returns 0 when the run failed, and leaves the SuperLink and Ray running.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedstride.errors import ConfigError
from fedstride.figures.metrics import as_text
from fedstride.files import atomic
from fedstride.messages import wire
from fedstride.processes import unix_signals
from server_app.config.keys import keys
from server_app.config.overrides import Override, with_parts, written
from server_app.config.schema import Config
from server_app.file_names import STATUS
from server_app.records.run_folder import default_name, runs_dir
from server_app.reports.round_line import columns, head

from .. import terminal
from ..engine.interrupt import how_to_resume
from ..results.run_folders import read_rows
from .bundle import app_folder
from .flower_command import environment, reason_in
from .run_status import plain
from .simulation_process import NAMED, NONE, ONE, PRIVATE

STOP_SECONDS = 20.0
"""For the simulation to end what it has started."""


MOST_BYTES = 107 - len("/fedstride-12345678/session_2026-01-31_12-34-56_123456_1234567/sockets/plasma_store")
"""Of the path of a folder in which Ray can make its sockets."""

SHORT = ("/tmp", "/var/tmp")


@dataclass(frozen=True)
class Simulated:
    """How a simulated run ended."""

    completed: bool
    folder: Path
    final: str = ""  # the final value of the metric that decides
    reason: str = ""


def run_simulation(
    config: Config, overrides: Sequence[Override], *, show: Callable[[str], None], verbose: bool = False
) -> Simulated:
    """Run the app with these Hydra overrides in Flower's simulation; `config` is what they compose to,
    prepared for a run (`preparation.prepare`).

    `show` is called with a line for each round. With `verbose`, Flower's log is copied to standard error
    while it is written. The log is saved in the run folder as `flower.log`. Ctrl-C and SIGTERM kill all
    processes of the simulation; status.json then says so.
    """
    folder = _free_folder(config)
    before = _status(folder)  # if the run is resumed: how it ended last time
    try:
        log = _run(config, overrides, folder, show, verbose)
    except unix_signals.STOPPED as error:
        if _status(folder) != before:
            _record_stop(folder, "terminated" if isinstance(error, unix_signals.Terminated) else "interrupted")
            show(f"stopped; {how_to_resume(folder)}")
        raise
    if folder.is_dir():
        (folder / "flower.log").write_text(log, encoding="utf-8")
    return _judge(folder, log, before, config.headline)


def _run(
    config: Config, overrides: Sequence[Override], folder: Path, show: Callable[[str], None], verbose: bool
) -> str:
    """Run the app until it ends, with all that it has started; its log."""
    with contextlib.ExitStack() as stack:
        home = _new_home()
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        app = stack.enter_context(app_folder(config.parts))
        order = {
            "parent": os.getpid(),
            "home": str(home),
            "app": str(app),
            "nodes": config.clients,
            "gpus": _gpus(config),
            "config": {
                wire.OVERRIDES: shlex.join(override.text for override in _overrides(config, overrides, folder))
            },
        }
        return _follow(order, _environment(home, folder, config), folder, config.headline, show, verbose)


# ---------------------------------------------------------------- before


def _new_home() -> Path:
    """A new folder, of this user alone, for what Ray keeps while the run lasts: in TMPDIR if that is short enough.

    Ray makes sockets there, and Linux allows their paths 107 bytes. Raises ConfigError if no folder is possible.
    """
    usual = tempfile.gettempdir()
    for place in (usual, *SHORT):
        if len(os.fsencode(place)) <= MOST_BYTES:
            with contextlib.suppress(OSError):
                return Path(tempfile.mkdtemp(prefix="fedstride-", dir=place))
    raise ConfigError(
        f"Ray makes sockets in the folder for temporary files, {usual}, whose path is longer than {MOST_BYTES} "
        f"bytes, and {' and '.join(SHORT)} cannot be written: set TMPDIR to a shorter path"
    )


def _gpus(config: Config) -> str:
    """Which graphics card a client trains on: one of the constants."""
    from ..engine.engine import any_gpu, uses_gpus  # imports torch

    if not uses_gpus(config):
        return NONE
    return ONE if any_gpu(config) else NAMED


def _free_folder(config: Config) -> Path:
    """The folder of the run. It is chosen here so that it is known, and below the user's folder of runs.

    A resumed run keeps its folder.
    """
    if config.resume is not None:
        return Path(config.resume)
    root = runs_dir(config)
    name = config.name or default_name(config)
    if config.name is not None and (root / name).exists():
        raise ConfigError(
            f"name = {name!r} is taken: {root / name} exists and is not overwritten; choose another name"
        )
    candidates = (root / (name if number == 1 else f"{name}-{number}") for number in itertools.count(1))
    return next(folder for folder in candidates if not folder.exists())


def _environment(home: Path, folder: Path, config: Config) -> dict[str, str]:
    variables = {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
    # The clients' states are stored in the run folder, as for runs in process.
    variables["FEDSTRIDE_STATE"] = str(folder / wire.CLIENT_STATES)
    if config.parts is not None:
        variables["FEDSTRIDE_PARTS"] = str(Path(config.parts).parent)
    return {**environment(home), **variables, **PRIVATE}


def _overrides(config: Config, overrides: Sequence[Override], folder: Path) -> list[Override]:
    """The overrides for the ServerApp, which writes to this folder. All paths are absolute: it runs in another."""
    location = [written("name", folder.name), written("out", str(folder.parent))]
    if config.resume is not None:
        location = [written("resume", config.resume)]  # the last override applies: this path is absolute
    others = ("out", "resume", "parts")
    location += [
        written(key.path, key.value)
        for key in keys(config)
        if key.field.setting.path and key.path not in others and key.value is not None
    ]
    return [*with_parts(overrides, config.parts), *location]


# ---------------------------------------------------------------- the run


def _follow(
    order: dict[str, Any],
    env: dict[str, str],
    folder: Path,
    metric: str,
    show: Callable[[str], None],
    verbose: bool,
) -> str:
    """Run the program until it ends, and show a line for each completed round; its complete output."""
    shown = 0
    command = [sys.executable, "-P", "-m", f"{__package__}.simulation_process"]
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as log:
        process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        position, rest = 0, ""
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError), process.stdin as given:
                given.write(json.dumps(order).encode())
            while True:
                finished = process.poll() is not None
                if verbose:
                    log.seek(position)
                    *lines, rest = (rest + log.read()).split("\n")
                    position = log.tell()
                    for line in [*lines, *([rest] if finished and rest else [])]:
                        terminal.line(plain(line), err=True)
                rows = read_rows(folder)
                for row in rows[shown:]:
                    if not shown:
                        show(head(metric))
                    show(columns(row, metric))
                    shown += 1
                if finished:
                    break
                time.sleep(0.2)
        finally:
            _stop(process)
        log.seek(0)
        return log.read()


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End the program with all that it has started."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


# ---------------------------------------------------------------- after


def _status(folder: Path) -> str:
    """The text of the run folder's status.json; empty if there is none."""
    path = folder / STATUS
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _record_stop(folder: Path, state: str) -> None:
    """Complete the status of a run whose server was killed: it says `running`."""
    status = json.loads(_status(folder))
    if status["state"] == "running":
        status |= {
            "state": state,
            "reason": "the simulation was stopped",
            "rounds": max(0, len(read_rows(folder)) - 1),
        }
        atomic.write_json(folder / STATUS, status)


def _judge(folder: Path, log: str, before: str, metric: str) -> Simulated:
    """How the run ended, by its run folder: Flower reports a run that trained nothing as completed, too."""
    status = _status(folder)
    if status == before:
        return Simulated(False, folder, reason=reason_in(log))
    ended = json.loads(status)
    if ended["state"] != "completed":
        return Simulated(False, folder, reason=ended.get("reason") or reason_in(log))
    return Simulated(True, folder, final=as_text(metric, ended["final"].get(metric)))
