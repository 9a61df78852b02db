"""A ServerApp that tries, on the server, what it may not: its strategy does so when it is made, and reports it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedstride import RuleStrategy, part

ORDER = json.loads("""{}""")  # the test puts what to try between the quotes


def read(path: str) -> str:
    return repr(Path(path).read_bytes()[:1])


def write(path: str) -> str:
    Path(path).write_bytes(b"x")
    return "written"


def connected(port: int) -> str:
    socket.create_connection(("127.0.0.1", port), 2).close()
    return "connected"


def of_parent(name: str) -> str:
    return repr((Path(f"/proc/{os.getppid()}") / name).read_bytes()[:1])


def signalled() -> str:
    os.kill(os.getppid(), 0)
    return "signalled"


def started() -> str:
    return subprocess.run(["cat", ORDER["read"][0]], capture_output=True, check=True).stdout[:1].decode()


def tried() -> dict[str, str]:
    """What each attempt gave: an error of the kernel, or what was gained."""
    ways: dict[str, Callable[[], str]] = {
        **{f"read {path}": lambda path=path: read(path) for path in ORDER["read"]},
        **{f"write {path}": lambda path=path: write(path) for path in ORDER["write"]},
        **{f"connect {port}": lambda port=port: connected(port) for port in ORDER["connect"]},
        "environ of the SuperLink": lambda: of_parent("environ"),
        "memory of the SuperLink": lambda: of_parent("mem"),
        "signal to the SuperLink": signalled,
        "UDP": lambda: str(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)),
        "a program that reads": started,
        "list of runs": lambda: str(os.listdir(ORDER["runs"])),
    }
    found = {}
    for name, way in ways.items():
        try:
            found[name] = f"gained: {way()}"
        except (OSError, subprocess.SubprocessError) as error:
            found[name] = type(error).__name__
    return found


@part(strategy="hostile_server")
class Hostile(RuleStrategy):
    """Tries everything, and ends the run with what came of it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        own = Path(os.environ["FEDSTRIDE_RUNS"])
        report = {"tried": tried(), "variables": sorted(os.environ)}
        (own / "report.json").write_text(json.dumps(report))
        raise RuntimeError("the report is written")

    def rule(self, sent: Any, cohort: Any, state: Any) -> Any:
        """Not reached."""
        raise NotImplementedError
