"""Submission over a connection with given answers: what is asked, and how answers are handled.

tests/deployment uses a SuperLink; the tests here simulate its failures.
"""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import signal
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedstride.errors import ConfigError, RunError
from fedstride.messages import wire
from fedstride.messages.app_signatures import RUN_CONFIG
from lab.cli import main as cli
from lab.flower import submission
from lab.flower.submission import follow, submit
from lab.flower.superlink_choice import ChosenSuperLink
from lab.flower.superlink_requests import Listed

LOG = [
    f"\x1b[92mINFO \x1b[0m:      {wire.FOLDER_LINE % '/srv/runs/a b'}",
    "\x1b[92mINFO \x1b[0m:      round   1   test accuracy  40.10 %",
    f"\x1b[92mINFO \x1b[0m:      {wire.FINAL_LINE % ('test accuracy', '53.20 %', '/srv/runs/a b')}",
]


class Scripted:
    """A connection with a list of answers for each question; it repeats the last answer. Errors are raised.

    An answer to `log` is a list of pieces; each has its number as its time. "it stays" waits for a minute.
    """

    def __init__(self, log: list[Any], run: list[Any] | None = None, start: list[Any] | None = None) -> None:
        self._answers = {"log": log, "run": run or [], "start": start or []}
        self.config: dict[str, str] = {}  # of what was submitted
        self.arrives = False
        self.asked: list[tuple[str, float]] = []

    def log(self, run_id: str, after: float = 0.0) -> Iterator[tuple[str, float]]:
        for moment, piece in enumerate(self._next("log", after), 1):
            if isinstance(piece, Exception):
                raise piece
            if moment > after:
                yield piece, float(moment)
            if "it stays" in piece:
                time.sleep(60)

    def start(self, made: bytes, config: dict[str, str]) -> str:
        assert zipfile.is_zipfile(io.BytesIO(made))
        self.config = config
        return str(self._next("start", 0.0))

    def runs(self) -> list[Listed]:
        mark = self.config[wire.SUBMISSION] if self.arrives else "somebody 1234"
        return [Listed("8", "fedstride", "running", "", "", "", "", "", mark)]

    def run(self, run_id: str) -> Listed:
        answer: Listed = self._next("run", 0.0)
        return answer

    def _next(self, kind: str, after: float) -> Any:
        nth = sum(each == kind for each, _ in self.asked)
        self.asked.append((kind, after))
        answer = self._answers[kind][min(nth, len(self._answers[kind]) - 1)]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def connected(monkeypatch: pytest.MonkeyPatch) -> Callable[[Scripted], ChosenSuperLink]:
    """Makes this connection the one that `follow` opens."""
    monkeypatch.setattr(submission, "PAUSE_SECONDS", 0.0)

    def use(scripted: Scripted) -> ChosenSuperLink:
        monkeypatch.setattr(submission, "control", lambda target: contextlib.nullcontext(scripted))
        return ChosenSuperLink("tls", "127.0.0.1:8000")

    return use


def listed(status: str, details: str = "") -> Listed:
    state, _, end = status.partition(":")
    return Listed("7", "fedstride", state, end, details, "", "", "", "")


def pieces(*lines: str) -> list[Any]:
    return [line + "\n" for line in lines]


# ---------------------------------------------------------------- submitting


@pytest.mark.slow
def test_the_overrides_arrive_unchanged(connected: Callable[[Scripted], ChosenSuperLink]) -> None:
    given = ["strategy=fedlws", "out='/srv/it\\'s \\\\ here'", 'name="ä 😀 \x7f"', "model=mlp"]
    scripted = Scripted([], start=["7"])
    assert submit(connected(scripted), given) == "7"
    assert shlex.split(scripted.config["overrides"]) == given
    assert "@" in scripted.config[wire.SUBMISSION] and RUN_CONFIG not in scripted.config


@pytest.mark.slow
def test_a_run_that_arrived_though_the_answer_did_not(connected: Callable[[Scripted], ChosenSuperLink]) -> None:
    """It is found by its mark; without it, the error is raised."""
    scripted = Scripted([], start=[RunError("the connection broke")])
    target = connected(scripted)
    with pytest.raises(RunError, match="the connection broke"):
        submit(target, [])
    scripted.arrives = True
    assert submit(target, []) == "8"


# ---------------------------------------------------------------- following


def test_a_completed_run(connected: Callable[[Scripted], ChosenSuperLink]) -> None:
    """The pieces of the log may end inside a line; the last line may have no end."""
    shown: list[str] = []
    text = "\n".join(LOG)
    scripted = Scripted([[text[:20], text[20:70], text[70:]]], [listed("finished:completed")])
    done = follow(connected(scripted), "7", shown.append)
    assert (done.completed, done.folder, done.final) == (True, "/srv/runs/a b", "test accuracy 53.20 %")
    assert shown[0] == "INFO :      the run's folder is /srv/runs/a b"  # without colours
    assert len(shown) == 3
    assert scripted.asked == [("log", 0.0), ("run", 0.0)]


@pytest.mark.parametrize(
    ("line", "is_shown"),
    [
        ("Successfully installed fedstride to /srv/server/apps/fedstride.0.1.0", False),
        ("\x1b[92mINFO \x1b[0m:      aggregate_evaluate: Received 12 results and 0 failures", False),
        ("INFO :      ", False),
        ("INFO :      aggregate_fit: Received 3 results and 1 failures", True),
        ("INFO :      round   1   train loss 0.5", True),
        ("WARNING :   ", True),
    ],
)
def test_lines_of_flower_that_say_nothing_are_left_out(
    connected: Callable[[Scripted], ChosenSuperLink], line: str, is_shown: bool
) -> None:
    shown: list[str] = []
    follow(connected(Scripted([pieces(line, *LOG)], [listed("finished:completed")])), "7", shown.append)
    assert len(shown) == 3 + is_shown


def test_a_broken_connection_is_continued_without_repeated_lines(
    connected: Callable[[Scripted], ChosenSuperLink],
) -> None:
    """Also one that breaks inside a line."""
    shown: list[str] = []
    whole = [*pieces(LOG[0]), LOG[1][:10], LOG[1][10:] + "\n", *pieces(LOG[2])]
    broken, away = RunError("the log broke off"), RunError("unreachable")
    scripted = Scripted(
        [[*whole[:2], broken], away, whole[:3], whole],
        [listed("running"), away, listed("finished:completed")],
    )
    assert follow(connected(scripted), "7", shown.append).final == "test accuracy 53.20 %"
    assert [line[-7:] for line in shown] == [line.rstrip()[-7:] for line in LOG]
    assert [after for kind, after in scripted.asked if kind == "log"] == [0.0, 2.0, 2.0, 3.0, 4.0]


def test_a_superlink_that_is_unreachable(connected: Callable[[Scripted], ChosenSuperLink]) -> None:
    scripted = Scripted([RunError("it is gone")])
    with pytest.raises(RunError, match=r"run 7 can no longer be followed \(it is gone\); it may still continue"):
        follow(connected(scripted), "7", print)
    assert len(scripted.asked) == submission.ATTEMPTS


def test_a_superlink_without_the_run(connected: Callable[[Scripted], ChosenSuperLink]) -> None:
    with pytest.raises(ConfigError, match="has no run 7"):
        follow(connected(Scripted([ConfigError("it has no run 7")])), "7", print)


@pytest.mark.parametrize(
    ("status", "details", "log", "reason"),
    [
        ("finished:failed", "ServerApp failed with exception: clients = 3\nmore", LOG[:1], "clients = 3"),
        (
            "finished:failed",
            "N/A",
            [*LOG[:1], "ERROR :     RunError: no reply", "Traceback"],
            "RunError: no reply",
        ),
        ("finished:failed", "", ["nothing of use"], "nothing of use"),
        ("finished:stopped", "Stopped by user", LOG[:1], "a user stopped it, with fedstride stop or flwr stop"),
    ],
)
def test_a_run_that_is_not_completed(
    connected: Callable[[Scripted], ChosenSuperLink], status: str, details: str, log: list[str], reason: str
) -> None:
    done = follow(connected(Scripted([pieces(*log)], [listed(status, details)])), "7", print)
    assert (done.completed, done.final) == (False, "")
    assert done.reason.endswith(reason)
    assert "\n" not in done.reason


# ---------------------------------------------------------------- the command


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a connection first"),
        (["rounds=2"], "name a connection first"),
        (["clinics"], "unknown connection 'clinics'"),
        (["clinic", "rounds=0"], "rounds = 0 is not allowed"),
        (["clinic", "strategy.betta=1"], "unknown key 'strategy.betta'"),
        (["clinic", "strategy.beta=-1"], "strategy.beta = -1.0 is not allowed"),
        (["clinic", "resume=/srv/runs/x", "nonsense"], "'nonsense' is not an override"),
        (["clinic", "--insecure"], "are only allowed with --address"),
        (["--address", "superlink:8000"], "--address needs --root-certificates ca.crt, or --insecure"),
        (["--address", "superlink:8000", "--insecure", "--root-certificates", "x"], "one of them"),
        (["--address", "superlink:8000", "--root-certificates", "nowhere.crt"], "nowhere.crt does not exist"),
        (["--address", "superlink:8000", "--insecure", "clinic"], "'clinic' is not an override"),
    ],
)
def test_an_invalid_request_gives_one_line_and_exit_code_2(
    home: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.setattr(submission, "control", lambda target: pytest.fail("the SuperLink was asked"))
    monkeypatch.setattr("sys.argv", ["fedstride", "submit", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    err = capsys.readouterr().err
    assert message in err and len(err.strip().splitlines()) == 1


@pytest.mark.slow
def test_the_last_lines(
    connected: Callable[[Scripted], ChosenSuperLink],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = connected(Scripted([pieces(*LOG)], [listed("finished:completed")], ["7"]))
    monkeypatch.setattr("lab.flower.superlink_choice.named", lambda name: target)
    monkeypatch.setattr("sys.argv", ["fedstride", "submit", "tls", "rounds=1"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert "run 7 submitted to 127.0.0.1:8000" in lines
    assert lines[-2:] == ["final test accuracy 53.20 %", "folder, on the SuperLink's machine: /srv/runs/a b"]


@pytest.mark.slow
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_prints_how_to_follow_or_stop_the_run(
    connected: Callable[[Scripted], ChosenSuperLink],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scripted = Scripted([pieces(LOG[0], "it stays")], start=["7"])
    target = connected(scripted)
    monkeypatch.setattr("lab.flower.superlink_choice.named", lambda name: target)
    monkeypatch.setattr("sys.argv", ["fedstride", "submit", "tls", "rounds=1"])

    def press() -> None:
        while ("log", 0.0) not in scripted.asked:
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    out = capsys.readouterr().out
    assert "no longer followed; the run continues" in out
    assert "fedstride logs --follow 7 tls" in out and "fedstride stop 7 tls" in out
