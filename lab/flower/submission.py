"""Submits a run to a running SuperLink, follows its log, and reports how it ended.

The commands are `flwr run`, `flwr log` and `flwr list`. In Flower 1.39 they return 0 even if the run failed.
"""

from __future__ import annotations

import getpass
import itertools
import secrets
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedstride import wire
from fedstride.errors import ConfigError, RunError
from fedstride.flower import bundle
from fedstride.signatures import RUN_CONFIG
from server_app.config.overrides import parts_in, with_parts

from .bundle import app_folder
from .command import ask, write_run_config
from .control import control
from .endings import FINAL, PROGRESS, ending, folder_in, last, plain
from .reach import explained
from .target import Target

ATTEMPTS = 10  # failed calls in a row after which a run is no longer followed
PAUSE_SECONDS = 3.0


@dataclass(frozen=True)
class Submitted:
    """How a submitted run ended; `folder` is on the SuperLink's machine."""

    run_id: str
    completed: bool
    folder: str = ""
    final: str = ""  # the metric that decides and its value, as the ServerApp logged it
    reason: str = ""
    state: str = "completed"  # or stopped, terminated, failed, lost


def submit(target: Target, overrides: Sequence[str], signature: Callable[[bytes], str] | None = None) -> str:
    """Submit the run; its id. Raises RunError if the SuperLink does not accept it.

    If the connection breaks while Flower submits, the run is looked up at the SuperLink: it may have arrived.
    `signature`: returns the signature of the bundle; its errors are raised.
    """
    parts = parts_in(overrides)
    named = None if parts is None else Path(parts).name  # the path inside the bundle
    mark = submission()
    with app_folder(parts) as app, tempfile.TemporaryDirectory(prefix="fedstride-") as folder:
        others = {wire.SUBMISSION: mark, RUN_CONFIG: "" if signature is None else signature(bundle(app))}
        run_config = write_run_config(Path(folder), with_parts(overrides, named), others)
        try:
            answer = ask(["flwr", "run", str(app), target.name, "-c", str(run_config)], target.env)
        except RunError as error:
            if (arrived := _arrived(target, mark)) is not None:
                return arrived
            raise RunError(f"no run was submitted to {target.address}: {explained(error, target)}") from error
    return str(answer["run-id"])


def submission() -> str:
    """Who submits (not verified by anyone), and a random word by which the run is found again."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "somebody"
    return f"{user}@{socket.gethostname()} {secrets.token_hex(8)}"


def _arrived(target: Target, mark: str) -> str | None:
    """The id of the run with this mark; None if the SuperLink has none, or does not answer."""
    try:
        with control(target) as connection:
            return next((run.run_id for run in connection.runs() if run.submission == mark), None)
    except (RunError, ConfigError):
        return None


def follow(target: Target, run_id: str, show: Callable[[str], None]) -> Submitted:
    """Show the run's log until the run ends; how it ended. A broken connection is opened again.

    Raises RunError if the SuperLink can no longer be reached; the run may still continue.
    """
    log: list[str] = []
    silent = 0
    while True:
        for text in _new_lines(target, run_id, len(log)):
            log.append(text)
            if not PROGRESS.search(text):
                show(text)
        try:
            run = ask(["flwr", "list", target.name, "--run-id", run_id], target.env)["runs"][0]
            silent = 0
        except RunError as error:
            silent += 1
            if silent == ATTEMPTS:
                raise RunError(
                    f"run {run_id} can no longer be followed ({explained(error, target)}); it may still continue"
                ) from error
        else:
            if str(run["status"]).startswith("finished"):
                return _judge(run_id, str(run["status"]), str(run["status-details"]), log)
        time.sleep(PAUSE_SECONDS)


def _new_lines(target: Target, run_id: str, seen: int) -> Iterator[str]:
    """The lines of the run's log after the first `seen`; ends with the run, or if the connection breaks."""
    process = subprocess.Popen(
        ["flwr", "log", run_id, target.name],
        env=target.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # errors of `flwr log` itself; `flwr list` reports the reason
        text=True,
        errors="replace",
        start_new_session=True,  # this process handles Ctrl-C
    )
    try:
        assert process.stdout is not None
        lines = map(plain, process.stdout)
        # `flwr log` first prints lines about itself, each time that it is called.
        of_the_run = itertools.dropwhile(lambda line: not line.startswith("Using SuperLink:"), lines)
        yield from itertools.islice(of_the_run, seen + 1, None)
    finally:
        process.kill()
        process.wait()


def _judge(run_id: str, status: str, details: str, log: Sequence[str]) -> Submitted:
    """How the run ended: by Flower's status and what the ServerApp logged."""
    final = last(FINAL, log)
    folder = folder_in(log)
    state, reason = ending(*status.partition(":")[::2], details, log)
    if state == "completed":
        return Submitted(run_id, True, folder, final=f"{final[1]} {final[2]}" if final else "")
    return Submitted(run_id, False, folder, reason=reason, state=state)
