"""A run on a SuperLink that already stands: submitted, followed, and its true end reported.

Knows Flower's connections and the four commands `flwr run | log | list | stop`; does not know what is
trained nor how a SuperLink is started. Flower (1.39) returns 0 whatever became of a run.
"""

from __future__ import annotations

import contextlib
import ipaddress
import itertools
import os
import re
import shlex
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedstride.errors import ConfigError, RunError, unknown
from lab.engine.bundle import app_folder
from lab.engine.flower_command import Connection, ask, environment, reason_in, write_connection, write_run_config

TEMPORARY = "fedstride"  # the name of a connection that was given as an address
ATTEMPTS = 10  # to reach a SuperLink that does not answer while a run is followed
PAUSE_SECONDS = 3.0

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
FOLDER = re.compile(r"the run's folder is (.+)$")
FINAL = re.compile(r"final test accuracy +([0-9.]+) %, folder (.+)$")


@dataclass(frozen=True)
class Target:
    """Where a run is submitted: a connection's name, and the environment in which `flwr` knows it."""

    name: str
    address: str
    env: dict[str, str]
    connection: Connection | None = None  # where it was given as an address: nothing else knows it

    def commands(self, run_id: str) -> list[str]:
        """How a user goes on with a run that she no longer follows."""
        name = shlex.quote(self.name)
        first = [] if self.connection is None else _how_to_keep(self.connection)
        return [*first, f"follow it:  flwr log {run_id} {name}", f"stop it:    flwr stop {run_id} {name}"]


@dataclass(frozen=True)
class Submitted:
    """How a submitted run ended; `folder` is on the SuperLink's machine."""

    run_id: str
    completed: bool
    folder: str = ""
    accuracy: str = ""  # in percent, as the ServerApp logged it
    reason: str = ""


# ---------------------------------------------------------------- where to


def flower_home() -> Path:
    """Where Flower keeps its connections."""
    return Path(os.environ.get("FLWR_HOME") or Path.home() / ".flwr").expanduser()


def named(name: str) -> Target:
    """The connection of this name in Flower's config.toml. Raises ConfigError, naming those there are."""
    path = flower_home() / "config.toml"
    try:
        known = tomllib.loads(path.read_text(encoding="utf-8")).get("superlink", {}) if path.is_file() else {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {str(error).splitlines()[0]}") from error
    connections = {key: value for key, value in known.items() if isinstance(value, dict)}
    if name not in connections:
        raise ConfigError(
            f"{unknown('connection', name, connections or ['none'])} (in {path}); or give --address HOST:PORT"
        )
    address = str(connections[name].get("address", ""))
    if address.startswith(":"):
        raise ConfigError(
            f"connection {name!r} is Flower's simulation on this machine, no SuperLink: use fedstride simulate"
        )
    return Target(name, address, environment())


@contextlib.contextmanager
def at_address(address: str, root_certificates: Path | None) -> Iterator[Target]:
    """A connection that needs no config.toml; in plain text where no certificate is given."""
    if not _is_host_and_port(address):
        raise ConfigError(
            f"--address {address!r} is not allowed: HOST:PORT is, as in superlink:8000 or [::1]:8000"
        )
    if root_certificates is not None and not root_certificates.is_file():
        raise ConfigError(
            f"--root-certificates {root_certificates} does not exist: name the CA's certificate, ca.crt"
        )
    trusted = None if root_certificates is None else root_certificates.expanduser().resolve()
    connection = Connection(TEMPORARY, address, trusted)
    with tempfile.TemporaryDirectory(prefix="fedstride-") as folder:
        write_connection(Path(folder), connection)
        yield Target(TEMPORARY, address, environment(Path(folder)), connection)


def _is_host_and_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        return False
    if host.startswith("["):
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(host.strip("[]")).version == 6
        return False
    return re.fullmatch(r"[A-Za-z0-9._-]+", host) is not None


def _how_to_keep(connection: Connection) -> list[str]:
    lines = ["    " + line for line in connection.toml().splitlines()]
    return [f"first put this into {flower_home() / 'config.toml'}:", *lines]


# ---------------------------------------------------------------- the run


def submit(target: Target, overrides: Sequence[str]) -> str:
    """Hand the run over; its id. Raises RunError where the SuperLink does not take it."""
    with app_folder() as app, tempfile.TemporaryDirectory(prefix="fedstride-") as folder:
        run_config = write_run_config(Path(folder), overrides)
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
