"""`fedstride watch`: what is known of a run, its display, and a real run that is watched from another process."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from io import StringIO
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from desk import StopAfter, play
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fedstride.errors import ConfigError, RunError
from fedstride.messages import wire
from lab.flower.superlink_requests import Listed
from lab.watch import deployed
from lab.watch.curve import curve
from lab.watch.local import look, looks
from lab.watch.view import drawn, show
from lab.watch.watched_run import WatchedRun, changes
from server_app.reports.progress import FILE, answered, asked, begins, closed

SIGHT = WatchedRun(
    "mine", "running", "", 3, 20, "local/accuracy", {0: 0.1, 1: 0.5, 2: 0.75},
    {"clinic-a": "training", "clinic-b": "answered", "clinic-c": "rejected", "d": "lost", "4": "waiting"},
    {"clinic-c": "the update is too long", "clinic-b": "of an earlier round"},
)  # fmt: skip


def text(watched: WatchedRun, width: int = 79, height: int = 24, **options: Any) -> list[str]:
    console = Console(width=width, height=height, file=StringIO(), record=True)
    console.print(drawn(watched, width, height, **options))
    return [line.rstrip() for line in console.export_text().splitlines()]


# ---------------------------------------------------------------- the display


def test_the_display() -> None:
    assert text(SIGHT) == [
        "mine   running",
        "round 3 of 20   local accuracy 75.00 % in round 2",
        "75.00 % │        ████",
        "        │    ▁▁▁▁████",
        "        │    ████████",
        "        │    ████████",
        "10.00 % │▁▁▁▁████████",
        "round 3: 1 training, 1 answered, 1 rejected, 1 lost, 1 waiting",
        "clinic-a  training",
        "clinic-b  answered",
        "clinic-c  rejected  the update is too long",
        "d         lost",
        "client 4  waiting",
    ]


@pytest.mark.parametrize("size", [(40, 10), (79, 24), (200, 60)])
@pytest.mark.parametrize("clients", [0, 1, 100])
def test_the_display_fits_into_the_terminal(size: tuple[int, int], clients: int) -> None:
    width, height = size
    states = {f"node-{k}": ("lost" if k == 77 else "training") for k in range(clients)}
    points = {k: 1 / (k + 1) for k in range(500)}
    lines = text(replace(SIGHT, clients=states, points=points, reason=""), width, height)
    assert all(len(line) <= width for line in lines)
    assert len(lines) <= max(height, 12)
    if clients > 77:  # those with a fault come first
        (faulty,) = [line for line in lines if "node-77" in line]
        assert faulty.split() == ["node-77", "lost"]


def test_text_from_elsewhere_does_no_harm() -> None:
    hostile = replace(
        SIGHT, name="\x1b[2J", reason="[red]\x07", clients={"[bold]a": "training", "\x1b]0;x": "odd"}
    )
    shown = "\n".join(text(hostile))
    assert "[bold]a" in shown and "[red]" in shown
    assert "\x1b" not in shown and "\x07" not in shown


def test_plain_ascii() -> None:
    assert all(line.isascii() for line in text(SIGHT, ascii_only=True))


@given(st.lists(st.floats(width=32), max_size=200), st.integers(8, 80), st.integers(1, 9))
def test_a_curve_has_its_size_and_order(values: list[float], width: int, height: int) -> None:
    lines = curve(values, width=width, height=height)
    finite = [value for value in values[-width:] if abs(value) < float("inf")]
    if not lines:
        return
    assert len(lines) == height and {len(line) for line in lines} == {min(len(values), width)}
    if len(values) <= width and len(finite) > 1:
        heights = [sum(" ▁▂▃▄▅▆▇█".index(line[column]) for line in lines) for column in range(len(values))]
        for (a, x), (b, y) in zip(
            zip(values, heights, strict=True), list(zip(values, heights, strict=True))[1:], strict=False
        ):
            if abs(a) < float("inf") and abs(b) < float("inf"):
                assert (a < b) <= (x <= y) and (a > b) <= (x >= y)
        assert max(heights) == 8 * height or len(set(finite)) == 1


# ---------------------------------------------------------------- lines


def test_lines_say_what_is_new() -> None:
    start = WatchedRun(
        "mine", "running", rounds=3, metric="local/accuracy", clients={"a": "waiting", "b": "waiting"}
    )
    first = replace(start, round=1, clients={"a": "training", "b": "training"})
    second = replace(first, clients={"a": "training", "b": "answered"})
    third = replace(second, points={1: 0.5}, clients={"a": "lost", "b": "answered"})
    end = replace(third, state="failed", reason="no client")
    assert changes(None, start) == ["mine: running"]
    assert changes(start, first) == ["round   1   a, b training"]
    assert changes(first, second) == ["round   1   b answered"]
    assert changes(second, third) == ["round   1   local accuracy  50.00 %", "round   1   a lost"]
    assert changes(third, end) == ["mine: failed (no client)"]
    assert changes(end, end) == []


def test_a_line_names_some_of_many_clients() -> None:
    many = replace(SIGHT, clients={f"n{k}": "training" for k in range(100)})
    (line,) = changes(replace(many, clients={}), many)
    assert line == "round   3   n0, n1, n2, n3, n4, n5, n6, n7 and 92 more training"


# ---------------------------------------------------------------- a run on this machine


@pytest.mark.slow
def test_a_folder_is_read_while_the_run_lasts_and_afterwards(tmp_path: Path) -> None:
    states: list[WatchedRun] = []

    class Looks(StopAfter):
        def replied(self, server_round: int, done: int, total: int) -> None:
            states.append(look(tmp_path / "mine"))

    play(tmp_path, "rounds=2", "name=mine", "clients=3", observers=[Looks(9)])
    assert [(s.state, s.round, sorted(s.points)) for s in states[2:4]] == [
        ("running", 1, [0]),
        ("running", 2, [0, 1]),
    ]
    assert states[3].clients == {"0": "answered", "1": "training", "2": "training"}
    over = look(tmp_path / "mine")
    assert (over.state, over.round, over.rounds, sorted(over.points)) == ("completed", 2, 2, [0, 1, 2])
    assert over.clients == dict.fromkeys("012", "answered")
    (tmp_path / "mine" / FILE).write_text("{")  # damaged, or of a run that was killed
    assert look(tmp_path / "mine") == over


class Terminal:
    """A terminal, whose output is read at once so that nothing waits for it."""

    def __init__(self) -> None:
        self._ours, self.theirs = pty.openpty()
        self._found = b""
        self._thread = Thread(target=self._read)

    def start(self, command: list[str]) -> subprocess.Popen[bytes]:
        env = os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}
        process = subprocess.Popen(command, stdout=self.theirs, stderr=self.theirs, env=env)
        os.close(self.theirs)
        self._thread.start()
        return process

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # the other end is closed
            while piece := os.read(self._ours, 10_000):
                self._found += piece

    def text(self) -> str:
        """Everything that was written, when the command has ended."""
        self._thread.join()
        os.close(self._ours)
        return self._found.decode()


@contextmanager
def running(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    overrides = ["model=mlp", "clients=3", "rounds=30", "client.local_steps=2", "workers=0", "name=mine"]
    command = [sys.executable, "-m", "lab.cli.main", "run", "-q", "--no-compare", f"out={tmp_path}", *overrides]
    process = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + 90
        while not (tmp_path / "mine/progress.json").exists():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        process.send_signal(signal.SIGSTOP)  # the others start while it waits
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
@pytest.mark.timeout(400)  # four processes import what they need
def test_a_real_run_is_watched_from_other_processes(tmp_path: Path) -> None:
    """Without a terminal, lines; on one, a display that is drawn again and again."""
    watch = [sys.executable, "-m", "lab.cli.main", "watch", str(tmp_path / "mine")]
    terminal = Terminal()
    with running(tmp_path) as run:
        plain = subprocess.Popen(watch, stdout=subprocess.PIPE, text=True)
        display = terminal.start(watch)
        assert plain.stdout is not None
        first = plain.stdout.readline()
        run.send_signal(signal.SIGCONT)
        lines = [first, *plain.stdout]
        assert run.wait(100) == 0 and plain.wait(100) == 0 and display.wait(100) == 0
    assert lines[0] == "mine: running\n"
    assert lines[-1] == "mine: completed\n"
    assert [int(line.split()[1]) for line in lines if "test accuracy" in line] == list(range(31))
    assert any("client 0" in line and "answered" in line for line in lines)
    seen = terminal.text()
    assert "completed" in seen and "round 30 of 30" in seen and "client 2" in seen and "█" in seen


def test_the_copy_of_a_run_in_progress_is_not_waited_for(tmp_path: Path) -> None:
    """`fedstride fetch` has copied its status: running."""
    folder = play(tmp_path, "rounds=1", "name=mine").folder
    status = json.loads((folder / "status.json").read_text())
    (folder / "status.json").write_text(json.dumps(status | {"state": "running"}))
    (folder / "fetched.json").write_text(json.dumps({"state": "running", "fetched": "2026-01-01T10:00:00+0000"}))
    (watched,) = looks(folder)
    assert watched.state == "fetched" and "is still running (when it was fetched, 2026" in watched.reason


@pytest.mark.slow
def test_a_run_that_did_not_complete_has_exit_code_1(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, "rounds=3", "name=mine", observers=[StopAfter(1)])
    watch = [sys.executable, "-m", "lab.cli.main", "watch", str(tmp_path / "mine")]
    done = subprocess.run(watch, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: mine: interrupted (") and done.stderr.count("\n") == 1


# ---------------------------------------------------------------- a deployed run


class Stand:
    """A SuperLink that hands over the log in these pieces; "!" breaks the connection."""

    def __init__(self, pieces: list[str], *runs: Listed) -> None:
        self.pieces = pieces
        self.runs = list(runs)
        self.asked: list[float] = []

    def run(self, run_id: str) -> Listed:
        return self.runs.pop(0) if len(self.runs) > 1 else self.runs[0]

    def log(self, run_id: str, after: float = 0.0) -> Iterator[tuple[str, float]]:
        self.asked.append(after)
        for number, piece in enumerate(self.pieces[int(after) :], start=int(after) + 1):
            if piece == "!":
                self.pieces[number - 1] = ""
                raise RunError("the log of run 7 broke off: no answer")
            yield piece, float(number)


RUN = Listed("7", "fedstride/fedstride", "running", "", "", "2026-01-01T10:00:00+00:00", "", "", "")
OVER = replace(RUN, status="finished", end="completed")


def line(event: dict[str, Any]) -> str:
    return f"\x1b[92mINFO \x1b[0m:      {wire.PROGRESS_LINE % json.dumps(event)}\n"


def test_a_deployed_run_is_followed_over_a_broken_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployed, "PAUSE_SECONDS", 0.0)
    log = "".join(
        [
            "INFO :      submitted by anna\n",
            line(begins(["a", "b"], 2, "local/accuracy", 0)),
            line(asked(1, ["a", "b"])),
            line(answered(1, ["a"])),
            line(closed(1, [{"client": "b", "status": "no reply", "reason": "hung \x1b[2J up"}], 0.5)),
            'INFO :      progress {"event": \n',  # damaged
        ]
    )
    pieces = [log[:100], "!", log[100:333], log[333:]]
    stand = Stand(pieces, replace(RUN, status="pending"), OVER)
    states = list(deployed.follow(stand, "7"))  # type: ignore[arg-type]
    assert stand.asked == [0.0, 1.0]
    assert [watched.state for watched in states] == ["pending", *4 * ["running"], "completed"]
    assert [dict(watched.clients) for watched in states[1:5]] == [
        {"a": "waiting", "b": "waiting"},
        {"a": "training", "b": "training"},
        {"a": "answered", "b": "training"},
        {"a": "answered", "b": "lost"},
    ]
    assert states[-1].points == {1: 0.5} and states[-1].rounds == 2
    assert states[-1].reasons == {"b": "hung  [2J up"}
    assert deployed.seen(states[4], asked(2, ["a"])).reasons == {}


def test_a_superlink_that_is_gone_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployed, "PAUSE_SECONDS", 0.0)
    stand = SimpleNamespace(run=lambda run_id: RUN, log=lambda run_id, after: Stand(["!"]).log(run_id))
    with pytest.raises(RunError, match="broke off: no answer; the run may still continue"):
        list(deployed.follow(stand, "7"))  # type: ignore[arg-type]


def test_the_last_state_is_returned() -> None:
    console = Console(file=StringIO())
    assert show(console, iter([SIGHT, replace(SIGHT, state="completed")])).state == "completed"


def test_what_is_no_run_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        look(tmp_path)
