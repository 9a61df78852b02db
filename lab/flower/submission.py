"""A run on a SuperLink that already stands: submitted, followed, and its true end reported.

Knows the commands `flwr run | log | list`; does not know how a SuperLink is found (`target.py`) or
started, nor what is trained. Flower (1.39) returns 0 whatever became of a run.
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
from server_app.config.overrides import parts_in, with_parts

from .bundle import app_folder
from .command import ask, reason_in, write_run_config
from .target import Target

ATTEMPTS = 10  # to reach a SuperLink that does not answer while a run is followed
PAUSE_SECONDS = 3.0

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
FOLDER = re.compile(wire.FOLDER_LINE.replace("%s", "(.+)") + "$")
FINAL = re.compile(wire.FINAL_LINE.replace("%.2f %%", "([0-9.]+) %").replace("%s", "(.+)") + "$")


@dataclass(frozen=True)
class Submitted:
    """How a submitted run ended; `folder` is on the SuperLink's machine."""

    run_id: str
    completed: bool
    folder: str = ""
    accuracy: str = ""  # in percent, as the ServerApp logged it
    reason: str = ""


def submit(target: Target, overrides: Sequence[str]) -> str:
    """Hand the run over; its id. Raises RunError where the SuperLink does not take it."""
    parts = parts_in(overrides)
    named = None if parts is None else Path(parts).name  # as it is found in the bundle
    with app_folder(parts) as app, tempfile.TemporaryDirectory(prefix="fedstride-") as folder:
        run_config = write_run_config(Path(folder), with_parts(overrides, named))
        try:
            answer = ask(["flwr", "run", str(app), target.name, "-c", str(run_config)], target.env)
        except RunError as error:
            raise RunError(f"no run was submitted to {target.address}: {error}") from error
    return str(answer["run-id"])


def follow(target: Target, run_id: str, show: Callable[[str], None]) -> Submitted:
    """Show the run's log until it ends, however often the line breaks; how it ended.

    Raises RunError where the SuperLink can no longer be reached: the run may go on.
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
                raise RunError(f"run {run_id} can no longer be followed ({error}); it may go on") from error
        else:
            if str(run["status"]).startswith("finished"):
                return _judge(run_id, str(run["status"]), str(run["status-details"]), log)
        time.sleep(PAUSE_SECONDS)


def _new_lines(target: Target, run_id: str, seen: int) -> Iterator[str]:
    """The lines of the run's log after the first `seen`; ends with the run, or where the line breaks."""
    process = subprocess.Popen(
        ["flwr", "log", run_id, target.name],
        env=target.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # its own complaints are no lines of the run; `flwr list` has the reason
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C is ours to handle
    )
    try:
        assert process.stdout is not None
        lines = (COLOURS.sub("", line).rstrip() for line in process.stdout)
        # What `flwr log` says of itself comes first, and each time anew.
        of_the_run = itertools.dropwhile(lambda line: not line.startswith("Using SuperLink:"), lines)
        yield from itertools.islice(of_the_run, seen + 1, None)
    finally:
        process.kill()
        process.wait()


def _judge(run_id: str, status: str, details: str, log: Sequence[str]) -> Submitted:
    """How the run ended: by Flower's status, with what our ServerApp logged."""
    final = next((found for line in reversed(log) if (found := FINAL.search(line))), None)
    folder = next((found[1] for line in log if (found := FOLDER.search(line))), "")
    if status == "finished:completed" and final is not None:
        return Submitted(run_id, True, folder, accuracy=final[1])
    if status == "finished:completed":
        return Submitted(run_id, True, folder)
    if status == "finished:stopped":
        return Submitted(run_id, False, folder, reason="it was stopped")
    said = "" if details in ("", "N/A") else details.strip().splitlines()[0]
    return Submitted(run_id, False, folder, reason=said or reason_in("\n".join(log)))
