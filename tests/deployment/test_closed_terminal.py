"""A terminal that is closed: runs go on as under nohup, other commands end with it."""

from __future__ import annotations

import json
import os
import pty
import signal
import sys
from pathlib import Path

import pytest
from desk import play, weights
from processes import until

pytestmark = pytest.mark.slow

SMALL = ["model=mlp", "clients=3", "client.local_steps=3"]
COMMANDS = {
    "run": ["run", "--no-compare", *SMALL, "rounds=40", "workers=0"],
    "run with workers": ["run", *SMALL, "rounds=12", "workers=2"],
    "sweep": ["run", "-m", *SMALL, "rounds=20", "seed=1,2", "--jobs", "2"],
    "simulate": ["simulate", *SMALL, "rounds=4"],
}


class Terminal:
    """A command that has a terminal of its own, which can be closed."""

    def __init__(self, *arguments: str) -> None:
        self.process, self._end = pty.fork()
        if self.process == 0:
            signal.signal(signal.SIGHUP, signal.SIG_DFL)  # these tests may run under nohup themselves
            os.execv(sys.executable, [sys.executable, "-m", "lab.cli.main", *arguments])
        self.seen = ""

    def shows(self, text: str) -> None:
        """Wait until the command has written this."""
        while text not in self.seen:
            self.seen += os.read(self._end, 10_000).decode(errors="replace")

    def close(self) -> int:
        """Close the terminal, and wait for the command; what `os.waitpid` says of its end."""
        os.close(self._end)
        return os.waitpid(self.process, 0)[1]


def states(folder: Path) -> list[str]:
    return [json.loads(file.read_text())["state"] for file in sorted(folder.rglob("status.json"))]


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_run_goes_on(tmp_path: Path, kind: str) -> None:
    terminal = Terminal(*COMMANDS[kind], f"out={tmp_path}")
    terminal.shows("started" if kind == "sweep" else " 0 ")
    until(lambda: states(tmp_path) or None, "a run", 120.0)
    assert os.waitstatus_to_exitcode(terminal.close()) == 0, terminal.seen
    assert set(states(tmp_path)) == {"completed"}
    if kind == "run":
        (folder,) = (file.parent for file in tmp_path.rglob("status.json"))
        whole = play(tmp_path / "other", *SMALL, "rounds=40", small=False)
        assert weights(folder) == weights(whole.folder)


def test_a_resumed_run_goes_on(tmp_path: Path) -> None:
    folder = play(tmp_path, *SMALL, "rounds=2", small=False).folder
    terminal = Terminal("resume", str(folder), "rounds=40")
    terminal.shows(" 3 ")
    assert os.waitstatus_to_exitcode(terminal.close()) == 0, terminal.seen
    assert json.loads((folder / "status.json").read_text())["rounds"] == 40


def test_a_watching_command_ends(tmp_path: Path) -> None:
    """So do `submit`, `logs --follow` and all others: nobody would see what they show."""
    folder = play(tmp_path, *SMALL, "rounds=2", small=False).folder
    (folder / "status.json").write_text(json.dumps({"state": "running", "started": "2026-01-01T10:00:00+0000"}))
    (folder / ".lock").unlink(missing_ok=True)
    running = Terminal("run", "--no-compare", *SMALL, "rounds=400", "workers=0", f"out={tmp_path}", "name=mine")
    running.shows(" 0 ")
    watching = Terminal("watch", str(tmp_path / "mine"))
    watching.shows("running")
    assert os.waitstatus_to_exitcode(watching.close()) in (143, -signal.SIGHUP)
    assert os.waitpid(running.process, os.WNOHANG) == (0, 0)
    os.kill(running.process, signal.SIGTERM)
    running.close()
