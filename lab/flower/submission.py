"""Submits a run to a running SuperLink, follows its log, and reports how it ended.

The commands are `flwr run`, `flwr log` and `flwr list`. In Flower 1.39 they return 0 even if the run failed.
"""

from __future__ import annotations

import itertools
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedstride import wire
from fedstride.errors import RunError
from fedstride.flower import bundle
from server_app.config.overrides import parts_in, with_parts

from .bundle import app_folder
from .command import ask, reason_in, write_run_config
from .reach import explained
from .target import Target

ATTEMPTS = 10  # failed calls in a row after which a run is no longer followed
PAUSE_SECONDS = 3.0

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
FOLDER = re.compile(wire.FOLDER_LINE.replace("%s", "(.+)") + "$")
FINAL = re.compile(wire.FINAL_LINE.replace("%s", "(.+)") + "$")


@dataclass(frozen=True)
class Submitted:
    """How a submitted run ended; `folder` is on the SuperLink's machine."""

    run_id: str
    completed: bool
    folder: str = ""
    final: str = ""  # the metric that decides and its value, as the ServerApp logged it
    reason: str = ""


def submit(target: Target, overrides: Sequence[str], signature: Callable[[bytes], str] | None = None) -> str:
    """Submit the run; its id. Raises RunError if the SuperLink does not accept it.

    `signature`: returns the signature of the bundle; its errors are raised.
    """
    parts = parts_in(overrides)
    named = None if parts is None else Path(parts).name  # the path inside the bundle
    with app_folder(parts) as app, tempfile.TemporaryDirectory(prefix="fedstride-") as folder:
        signed = "" if signature is None else signature(bundle(app))
        run_config = write_run_config(Path(folder), with_parts(overrides, named), signed)
        try:
            answer = ask(["flwr", "run", str(app), target.name, "-c", str(run_config)], target.env)
        except RunError as error:
            raise RunError(f"no run was submitted to {target.address}: {explained(error, target)}") from error
    return str(answer["run-id"])


def follow(target: Target, run_id: str, show: Callable[[str], None]) -> Submitted:
    """Show the run's log until the run ends; how it ended. A broken connection is opened again.

    Raises RunError if the SuperLink can no longer be reached; the run may still continue.
    """
    log: list[str] = []
    silent = 0
    while True:
        for text in _new_lines(target, run_id, len(log)):
            log.append(text)
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
        lines = (COLOURS.sub("", line).rstrip() for line in process.stdout)
        # `flwr log` first prints lines about itself, each time that it is called.
        of_the_run = itertools.dropwhile(lambda line: not line.startswith("Using SuperLink:"), lines)
        yield from itertools.islice(of_the_run, seen + 1, None)
    finally:
        process.kill()
        process.wait()


def _judge(run_id: str, status: str, details: str, log: Sequence[str]) -> Submitted:
    """How the run ended: by Flower's status and what the ServerApp logged."""
    final = next((found for line in reversed(log) if (found := FINAL.search(line))), None)
    folder = next((found[1] for line in log if (found := FOLDER.search(line))), "")
    if status == "finished:completed" and final is not None:
        return Submitted(run_id, True, folder, final=f"{final[1]} {final[2]}")
    if status == "finished:completed":
        return Submitted(run_id, True, folder)
    if status == "finished:stopped":
        return Submitted(run_id, False, folder, reason="it was stopped")
    first = "" if details in ("", "N/A") else details.strip().splitlines()[0]
    return Submitted(run_id, False, folder, reason=first or reason_in("\n".join(log)))
