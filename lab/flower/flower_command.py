"""Calls Flower's command line: its environment variables, its files, and the output of Flower 1.39 to 1.42."""

from __future__ import annotations

import json
import os
import socket
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FlowerConnection:
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


def write_connection(home: Path, connection: FlowerConnection) -> None:
    """Write a config.toml into `home`, an FLWR_HOME, with this connection alone."""
    text = f"[superlink]\ndefault = {toml_string(connection.name)}\n\n{connection.toml()}"
    (home / "config.toml").write_text(text, encoding="utf-8")


def toml_string(text: str) -> str:
    """A TOML string: as JSON, except for the one character that TOML does not allow unescaped (U+007F)."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


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
