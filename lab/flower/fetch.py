"""Fetches the folder of a deployed run from the SuperLink's machine, over the connection that submitting uses.

Flower (1.39 to 1.42) hands over no files of a run. So a small app of its own (`courier.py`) is submitted, whose
log is the content of the folder.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fedstride.errors import ConfigError, RunError
from server_app.folder import write

from ..results.runs import FETCHED
from . import courier
from .command import ask, toml_string
from .control import Control, Listed
from .endings import Standing, standing
from .parcel import Parcel, unpacking

APP = "fedstride-courier"
ATTEMPTS = 5
PAUSE_SECONDS = 2.0
LEFT_OUT = ("checkpoint", "clients")
"""Folders of a run that only resuming it needs."""

PYPROJECT = f"""[project]
name = "{APP}"
version = "1.0.0"
description = "Prints the files of a run's folder into the log."
license = "Apache-2.0"
dependencies = ["flwr"]
[tool.flwr.app]
publisher = "fedstride"
[tool.flwr.app.components]
serverapp = "courier:app"
clientapp = "courier:client"
[tool.flwr.app.config]
folder = ""
left-out = "[]"
"""


def fetch(
    control: Control,
    run: Listed,
    to: Callable[[str], Path],
    *,
    left_out: Sequence[str] = LEFT_OUT,
    progress: Callable[[int], None] = lambda received: None,
) -> tuple[Path, Standing]:
    """Fetch the folder of this run; its new place, and how the run stands.

    `to`: the place for a folder of this name. `fetched.json` in it says where the files come from and how the run
    stood, and has their SHA-256. Raises ConfigError if the run has no folder or the place is taken, RunError if
    not every file arrived as it was read; nothing is left then.
    """
    stands = standing(run, control.log_so_far(run))
    if not stands.folder:
        raise ConfigError(f"run {run.run_id} has no folder: it is {stands.state}, and its log names none")
    place = to(Path(stands.folder).name)
    if place.exists():
        raise ConfigError(f"{place} exists and is not overwritten: move it away, or choose another folder with -o")
    with unpacking(place) as folder:
        parcel = Parcel(folder)
        _send(control, stands.folder, left_out, parcel, progress)
        if "config.yaml" not in parcel.sums:
            raise RunError(
                f"{stands.folder} on the SuperLink's machine is not a run's folder: it has no config.yaml"
            )
        about = {
            "run": run.run_id,
            "address": control.target.address,
            "folder": stands.folder,
            "fetched": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "state": stands.state,
            "reason": stands.reason,
            "files": parcel.sums,
        }
        write(folder / FETCHED, (json.dumps(about, indent=2) + "\n").encode())
    return place, stands


def _send(
    control: Control, folder: str, left_out: Sequence[str], parcel: Parcel, progress: Callable[[int], None]
) -> None:
    """Submit a courier and take what it prints, until all files are here."""
    courier_id = _submit(control, folder, left_out)
    try:
        _take(control, courier_id, parcel, progress)
    except BaseException:
        _stop(control, courier_id)
        raise
    if not parcel.complete:
        end = control.run(courier_id)
        raise RunError(
            f"the folder {folder} did not arrive ({standing(end, []).reason or 'its end is missing'}); "
            "nothing was kept, fetch it again"
        )


def _submit(control: Control, folder: str, left_out: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory(prefix="fedstride-courier-") as temporary:
        place = Path(temporary)
        (place / "app").mkdir()
        (place / "app/pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
        shutil.copy(courier.__file__, place / "app/courier.py")
        config = place / "config.toml"
        left = toml_string(json.dumps(list(left_out)))
        config.write_text(f"folder = {toml_string(folder)}\nleft-out = {left}\n", encoding="utf-8")
        command = ["flwr", "run", str(place / "app"), control.target.name, "-c", str(config)]
        return str(ask(command, control.target.env)["run-id"])


def _take(control: Control, run_id: str, parcel: Parcel, progress: Callable[[int], None]) -> None:
    """Take the lines of the log; a broken connection is opened again, after the last complete piece."""
    after, rest, broken = 0.0, "", 0
    while not parcel.complete:
        try:
            for piece, moment in control.log(run_id, after):
                after = moment
                *lines, rest = (rest + piece).split("\n")
                for line in lines:
                    parcel.take(line)
                broken = 0
                progress(parcel.bytes)
            return
        except RunError as error:
            broken += 1
            if "broke off" not in str(error) or broken == ATTEMPTS:
                raise RunError(f"{error}; nothing was kept, fetch it again") from error
            time.sleep(PAUSE_SECONDS)


def _stop(control: Control, run_id: str) -> None:
    try:
        control.stop(run_id)
    except (RunError, ConfigError):
        return  # the SuperLink is gone, and the courier with it
