"""Flower's command line, called as a program: its environment, its files, what it prints.

Knows console scripts, FLWR_HOME and Flower 1.39's ways of saying things; does not know what is run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedstride.errors import RunError


@dataclass(frozen=True)
class Connection:
    """How a SuperLink is reached; without root certificates in plain text."""

    name: str
    address: str  # HOST:PORT
    root_certificates: Path | None = None

    def toml(self) -> str:
        """As it stands in Flower's config.toml."""
        trust = (
            "insecure = true"
            if self.root_certificates is None
            else f"root-certificates = {toml_string(str(self.root_certificates))}"
        )
        return f"[superlink.{self.name}]\naddress = {toml_string(self.address)}\n{trust}\n"


def environment(home: Path | None = None) -> dict[str, str]:
    """This process's environment with Flower's traps switched off, and `home` as FLWR_HOME where given."""
    quiet = {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "PYTHONUNBUFFERED": "1",  # a log that is followed comes line by line
        # Our console scripts first: Flower starts its helpers by name.
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }
    return os.environ | quiet | ({} if home is None else {"FLWR_HOME": str(home)})


def write_connection(home: Path, connection: Connection) -> None:
    """Make `home` a FLWR_HOME whose only connection is this one."""
    text = f"[superlink]\ndefault = {toml_string(connection.name)}\n\n{connection.toml()}"
    (home / "config.toml").write_text(text, encoding="utf-8")


def write_run_config(folder: Path, overrides: Sequence[str]) -> Path:
    """The file that `flwr run -c` takes; a file, since Flower's parser of key=value pairs knows no escapes."""
    path = folder / "run-config.toml"
    path.write_text(f"overrides = {toml_string(shlex.join(overrides))}\n", encoding="utf-8")
    return path


def toml_string(text: str) -> str:
    """Text as TOML writes it: JSON's way, but for the one sign that JSON leaves bare and TOML does not allow."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def ask(command: Sequence[str], env: dict[str, str]) -> dict[str, Any]:
    """The answer of a `flwr ... --format json`. Raises RunError with Flower's reason where it says no.

    Flower's exit code says nothing here: it is 0 for most failures (1.39).
    """
    done = subprocess.run(
        [*command, "--format", "json"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
        start_new_session=True,  # Ctrl-C is ours to handle
    )
    start, end = done.stdout.find("{"), done.stdout.rfind("}")
    try:
        answer = json.loads(done.stdout[start : end + 1])
    except ValueError:
        raise RunError(f"{' '.join(command[:2])}: {reason_in(done.stdout + done.stderr)}") from None
    if not answer.get("success"):
        lines = str(answer.get("error-message", "")).strip().splitlines()
        raise RunError(f"{' '.join(command[:2])}: {lines[-1] if lines else 'Flower gave no reason'}")
    assert isinstance(answer, dict)
    return answer


def reason_in(log: str) -> str:
    """The line of Flower's log that says why: an error's own, else the text of the box it draws."""
    lines = [text.strip(" │") for text in log.splitlines() if text.strip(" │─╭╮╰╯")]
    errors = [text for text in lines if "Error: " in text]
    boxed = " ".join(text.strip(" │") for text in log.splitlines() if text.startswith("│"))
    return errors[-1] if errors else boxed or (lines or ["Flower said nothing"])[-1]


def free_port() -> int:
    """A loopback port that nothing listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def end_marked(mark: str, value: str) -> None:
    """End what Flower or Ray left behind: every other process with `mark=value` in its environment."""
    needle = f"{mark}={value}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0")
            if int(entry.name) != os.getpid() and needle in variables:
                os.kill(int(entry.name), signal.SIGKILL)
