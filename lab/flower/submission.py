"""Submits a run to a running SuperLink, follows its log, and reports how it ended.

All of it is asked over one kind of connection (`superlink_requests.py`): Flower's commands start a process for
each question, which takes as long as a short round.
"""

from __future__ import annotations

import getpass
import secrets
import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedstride.errors import ConfigError, RunError
from fedstride.flower.bundles import bundle
from fedstride.messages import signed_runs, wire
from fedstride.messages.app_signatures import RUN_CONFIG
from server_app.config.overrides import Override, parse, parts_in, with_parts

from .bundle import app_folder
from .log_following import Followed
from .run_status import ERROR, OF_FLOWER, PROGRESS, SITE, Standing, plain, standing
from .superlink_choice import ChosenSuperLink
from .superlink_requests import control

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


def submit(
    target: ChosenSuperLink,
    overrides: Sequence[str | Override],
    signature: Callable[[bytes], str] | None = None,
    signed_run: Callable[[bytes, Mapping[str, str]], str] | None = None,
    *,
    describes: bool = False,
) -> str:
    """Submit the run; its id. Raises RunError if the SuperLink does not accept it.

    If the connection breaks meanwhile, the run is looked up at the SuperLink: it may have arrived.
    `signature`: returns the signature of the bundle; `signed_run`: that of the run, from the bundle and the run's
    configuration. Their errors are raised. `describes`: the run only asks what the sites' data are like.
    """
    given = parse(overrides)
    parts = parts_in(given)
    named = None if parts is None else Path(parts).name  # the path inside the bundle
    mark = submission()
    with app_folder(parts) as app:
        try:
            made = bundle(app)
        except ValueError as error:
            raise ConfigError(f"the app cannot be bundled: {error}") from error
    config = {
        wire.OVERRIDES: shlex.join(override.text for override in with_parts(given, named)),
        wire.SUBMISSION: mark,
    }
    if describes:
        config[wire.CHECK] = "yes"
    if signature is not None:
        config[RUN_CONFIG] = signature(made)
    if signed_run is not None:
        config[signed_runs.RUN_CONFIG] = signed_run(made, config)
    try:
        with control(target) as connection:
            return connection.start(made, config)
    except RunError:
        if (arrived := _arrived(target, mark)) is not None:
            return arrived
        raise


def submission() -> str:
    """Who submits (not verified by anyone), and a random word by which the run is found again."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "somebody"
    return f"{user}@{socket.gethostname()} {secrets.token_hex(8)}"


def _arrived(target: ChosenSuperLink, mark: str) -> str | None:
    """The id of the run with this mark; None if the SuperLink has none, or does not answer."""
    try:
        with control(target) as connection:
            return next((run.run_id for run in connection.runs() if run.submission == mark), None)
    except (RunError, ConfigError):
        return None


def follow(
    target: ChosenSuperLink,
    run_id: str,
    show: Callable[[str], None],
    described: Callable[[str], None] = lambda text: None,
) -> Submitted:
    """Show the run's log until the run ends; how it ended. A broken connection is opened again.

    `described` gets what each site said of its data, as JSON.

    Raises RunError if the SuperLink can no longer be reached (the run may still continue), ConfigError if it does
    not have the run.
    """
    log: list[str] = []
    with control(target) as connection:
        followed = Followed(connection, run_id, attempts=ATTEMPTS, pause=PAUSE_SECONDS)
        try:
            for line in map(plain, followed):
                log.append(line)
                if match := SITE.search(line):
                    described(match[1])
                elif not any(pattern.search(line) for pattern in (PROGRESS, ERROR, OF_FLOWER)):
                    show(line)
        except RunError as error:
            raise RunError(f"run {run_id} can no longer be followed ({error}); it may still continue") from error
    return _submitted(run_id, standing(followed.run, log))


def _submitted(run_id: str, stands: Standing) -> Submitted:
    completed = stands.state == "completed"
    final = stands.figure if completed else ""
    return Submitted(run_id, completed, stands.folder, final, stands.reason, stands.state)
