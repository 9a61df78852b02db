"""Fetches the folder of a deployed run from the SuperLink's machine, over the connection that submitting uses.

Flower (1.39 to 1.42) hands over no files of a run; the guard of `fedstride superlink` does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from fedstride.errors import ConfigError, RunError
from fedstride.files import atomic
from fedstride.files.bounded_reading import from_json
from fedstride.flower.for_nodes.certificates import verified
from superlink.allowed_routes import FILES

from ..results.run_folders import FETCHED
from .fetched_folder import MOST_BYTES, FetchedFile, unpacking
from .run_status import Standing, standing
from .superlink_choice import ChosenSuperLink
from .superlink_requests import Control, Listed

SILENCE_SECONDS = 60.0
MOST_REASON = 2**14
"""Bytes of a refusal that are read."""

AGAIN = "nothing was kept, fetch it again"


def fetch(
    control: Control,
    run: Listed,
    to: Callable[[str], Path],
    *,
    everything: bool = False,
    most_bytes: int = MOST_BYTES,
    progress: Callable[[int], None] = lambda received: None,
) -> tuple[Path, Standing]:
    """Fetch the folder of this run; its new place, and how the run stands.

    `to`: the place for a folder of this name. `everything`: with what only resuming needs. `most_bytes`: that all
    files together may have. `fetched.json` in it says where the files come from and how the run stood, and has
    their SHA-256. Raises ConfigError if the run has
    no folder or the place is taken, RunError if not every file arrived as it was read; nothing is left then.
    """
    stands = standing(run, control.log_so_far(run))
    if not stands.folder:
        raise ConfigError(f"run {run.run_id} has no folder: it is {stands.state}, and its log names none")
    place = to(Path(stands.folder).name)
    if place.exists():
        raise ConfigError(f"{place} exists and is not overwritten: move it away, or choose another folder with -o")
    with unpacking(place) as folder:
        parcel = FetchedFile(folder, most_bytes)
        for piece in _pieces(control.target, stands.folder, everything):
            parcel.take(piece)
            progress(parcel.bytes)
        if not parcel.complete:
            raise RunError(f"the folder {stands.folder} did not arrive whole; {AGAIN}")
        about = {
            "run": run.run_id,
            "address": control.target.address,
            "folder": stands.folder,
            "fetched": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "state": stands.state,
            "reason": stands.reason,
            "files": parcel.sums,
        }
        atomic.write_json(folder / FETCHED, about)
    return place, stands


def _pieces(target: ChosenSuperLink, folder: str, everything: bool) -> Iterator[bytes]:
    """What the SuperLink sends of this folder. Raises RunError."""
    trusted = None if target.root_certificates is None else target.root_certificates.read_bytes()
    options = {
        "verify": False if target.insecure else verified(trusted),
        "trust_env": not target.insecure,  # in plain text, a proxy of the environment could read the token
        "timeout": SILENCE_SECONDS,
        "headers": {"accept-encoding": "identity", **target.headers()},
    }
    url = f"{'http' if target.insecure else 'https'}://{target.address}{FILES}"
    asked = {"folder": folder, "all": str(int(everything))}
    try:
        with (
            httpx.Client(**options) as client,  # type: ignore[arg-type]
            client.stream("GET", url, params=asked) as answer,
        ):
            if answer.status_code != httpx.codes.OK:
                raise RunError(_refused(answer))
            yield from answer.iter_raw()
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise RunError(f"the folder {folder} did not arrive ({error}); {AGAIN}") from None


def _beginning(answer: httpx.Response) -> bytes:
    """What a refusal says, of which no more than `MOST_REASON` bytes are read."""
    content = b""
    for piece in answer.iter_raw():
        content += piece
        if len(content) > MOST_REASON:
            break
    return content[:MOST_REASON]


def _refused(answer: httpx.Response) -> str:
    try:
        detail = str(from_json(_beginning(answer)).get("detail", ""))
    except (ValueError, AttributeError):
        detail = ""
    if answer.status_code == httpx.codes.NOT_FOUND and "folder of a run" not in detail:
        return "this SuperLink hands over no files: start it with fedstride superlink, instead of flower-superlink"
    return f"the folder was not handed over: {detail or f'HTTP {answer.status_code}'}"
