"""Calls Flower's command line: its environment variables, its files, and the output of Flower 1.39 to 1.42."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedstride.errors import RunError


@dataclass(frozen=True)
class Connection:
    """The address of a SuperLink and the certificate to trust; without root certificates, in plain text."""

    name: str
    address: str  # HOST:PORT
    root_certificates: Path | None = None

    def toml(self) -> str:
        """The connection as an entry of Flower's config.toml."""
        trust = (
            "insecure = true"
            if self.root_certificates is None
            else f"root-certificates = {toml_string(str(self.root_certificates))}"
        )
        return f"[superlink.{self.name}]\naddress = {toml_string(self.address)}\n{trust}\n"


def environment(home: Path | None = None) -> dict[str, str]:
    """This process's environment, with telemetry, update checks and dependency installation switched off.

    `home`, if given, becomes FLWR_HOME.
    """
    defaults = {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PYTHONUNBUFFERED": "1",  # so that a log can be followed line by line
        # This environment's programs first: Flower starts its helper processes by name.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }
    return os.environ | defaults | ({} if home is None else {"FLWR_HOME": str(home)})


def write_connection(home: Path, connection: Connection) -> None:
    """Write a config.toml into `home`, an FLWR_HOME, with this connection alone."""
    text = f"[superlink]\ndefault = {toml_string(connection.name)}\n\n{connection.toml()}"
    (home / "config.toml").write_text(text, encoding="utf-8")


def write_run_config(folder: Path, overrides: Sequence[str], others: Mapping[str, str] | None = None) -> Path:
    """Write the file for `flwr run -c`. A file, because Flower's parser of key=value pairs has no escapes.

    `others`: further keys; those with an empty value are left out.
    """
    path = folder / "run-config.toml"
    values = {"overrides": shlex.join(overrides), **{key: value for key, value in (others or {}).items() if value}}
    lines = [f"{key} = {toml_string(value)}\n" for key, value in values.items()]
    path.write_text("".join(lines), encoding="utf-8")
    return path


def toml_string(text: str) -> str:
    """A TOML string: as JSON, except for the one character that TOML does not allow unescaped (U+007F)."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def ask(command: Sequence[str], env: dict[str, str]) -> dict[str, Any]:
    """The JSON answer of a `flwr` command. Raises RunError with Flower's reason if the command failed.

    The exit code does not show a failure: in Flower 1.39 to 1.42 it is 0 for most of them.
    """
    done = subprocess.run(
        [*command, "--format", "json"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # this process handles Ctrl-C
    )
    start, end = done.stdout.find("{"), done.stdout.rfind("}")
    try:
        answer = json.loads(done.stdout[start : end + 1])
    except ValueError:
        raise RunError(f"{' '.join(command[:2])}: {reason_in(done.stdout + done.stderr)}") from None
    if not answer.get("success"):
        lines = str(answer.get("error-message", "")).strip().splitlines()
        raise RunError(f"{' '.join(command[:2])}: {lines[-1] if lines else 'Flower reported no reason'}")
    assert isinstance(answer, dict)
    return answer


def reason_in(log: str) -> str:
    """The reason for a failure in Flower's log: the last error line, else the text of the box that it prints."""
    lines = [text.strip(" │") for text in log.splitlines() if text.strip(" │─╭╮╰╯")]
    errors = [text for text in lines if "Error: " in text]
    boxed = " ".join(text.strip(" │") for text in log.splitlines() if text.startswith("│"))
    return errors[-1] if errors else boxed or (lines or ["Flower printed nothing"])[-1]


def free_port() -> int:
    """A loopback port on which no process listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def kill_marked(mark: str, value: str) -> None:
    """Kill what Flower or Ray left running: every other process with `mark=value` in its environment."""
    needle = f"{mark}={value}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0")
            if int(entry.name) != os.getpid() and needle in variables:
                os.kill(int(entry.name), signal.SIGKILL)
