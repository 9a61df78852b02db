"""Submission with a stand-in for `flwr`: the commands that it gets, and how its answers are handled.

tests/deployment uses the real one; the tests here simulate its failures.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedstride import wire
from fedstride.errors import RunError
from lab.cli import main as cli
from lab.flower import submission
from lab.flower.submission import follow, submit
from lab.flower.target import Target

HEAD = ["!INFO :      Starting logstream for run_id `7`", "Using SuperLink: tls (127.0.0.1:8000)"]
BROKEN = ["!Error: the SuperLink is unavailable", "!nothing of the run"]  # "!" is for standard error
LOG = [
    f"\x1b[92mINFO \x1b[0m:      {wire.FOLDER_LINE % '/srv/runs/a b'}",
    "\x1b[92mINFO \x1b[0m:      round   1   test accuracy  40.10 %",
    f"\x1b[92mINFO \x1b[0m:      {wire.FINAL_LINE % ('test accuracy', '53.20 %', '/srv/runs/a b')}",
]
STAND_IN = """#!{python}
import json, os, pathlib, sys
place = pathlib.Path({place!r})
verb = sys.argv[1]
with (place / "calls.jsonl").open("a") as calls:
    calls.write(json.dumps(sys.argv[1:]) + "\\n")
if "-c" in sys.argv:
    text = pathlib.Path(sys.argv[sys.argv.index("-c") + 1]).read_text()
    (place / "run-config.toml").write_text(text)
part = json.loads((place / f"{{verb}}.json").read_text())
nth = sum(json.loads(line)[0] == verb for line in (place / "calls.jsonl").open()) - 1
answer = part[min(nth, len(part) - 1)]
if isinstance(answer, list):
    for line in answer:
        print(line.lstrip("!"), file=sys.stderr if line.startswith("!") else sys.stdout, flush=True)
    if "stays" in answer[-1]:
        import time; time.sleep(60)
elif isinstance(answer, str):
    sys.exit(answer)
else:
    print(json.dumps(answer))
"""


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Target]:
    """A stand-in for `flwr` with a list of answers for each verb; it repeats the last answer."""
    monkeypatch.setattr(submission, "PAUSE_SECONDS", 0.0)
    script = tmp_path / "bin/flwr"
    script.parent.mkdir()
    script.write_text(STAND_IN.format(python=sys.executable, place=str(tmp_path)))
    script.chmod(0o755)

    def set_up(**parts: list[Any]) -> Target:
        for verb, answers in parts.items():
            (tmp_path / f"{verb}.json").write_text(json.dumps(answers))
        return Target("tls", "127.0.0.1:8000", os.environ | {"PATH": f"{script.parent}:{os.environ['PATH']}"})

    return set_up


def calls(tmp_path: Path) -> list[list[str]]:
    return [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]


def listed(status: str, details: str = "N/A") -> dict[str, Any]:
    return {"success": True, "runs": [{"run-id": "7", "status": status, "status-details": details}]}


# ---------------------------------------------------------------- submitting


def test_the_overrides_arrive_unchanged(stand_in: Callable[..., Target], tmp_path: Path) -> None:
    given = ["strategy=fedlws", "out='/srv/it''s \\\\ here'", 'name="ä 😀 \x7f"', "model=mlp"]
    assert submit(stand_in(run=[{"success": True, "run-id": "7"}]), given) == "7"
    import shlex

    written = tomllib.loads((tmp_path / "run-config.toml").read_text())
    assert shlex.split(written["overrides"]) == given
    (call,) = calls(tmp_path)
    assert call[0] == "run" and call[2] == "tls" and call[-2:] == ["--format", "json"]
    assert (Path(call[1]) / "pyproject.toml").is_file()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            {"success": False, "error-message": "Using SuperLink\n\n[code: 15] Invalid run configuration."},
            "no run was submitted to 127.0.0.1:8000: flwr run: [code: 15] Invalid run configuration.",
        ),
        ({"success": False}, "Flower reported no reason"),
        ("│ No such option │", "No such option"),
        ("TypeError: boom", "TypeError: boom"),
        ([""], "Flower printed nothing"),
    ],
)
def test_a_superlink_that_refuses(stand_in: Callable[..., Target], answer: Any, message: str) -> None:
    with pytest.raises(RunError) as caught:
        submit(stand_in(run=[answer]), [])
    assert message in str(caught.value)


# ---------------------------------------------------------------- following


def test_a_completed_run(stand_in: Callable[..., Target], tmp_path: Path) -> None:
    shown: list[str] = []
    done = follow(stand_in(log=[HEAD + LOG], list=[listed("finished:completed")]), "7", shown.append)
    assert (done.completed, done.folder, done.final) == (True, "/srv/runs/a b", "test accuracy 53.20 %")
    # Without colours, and without lines by `flwr log` itself.
    assert shown[0] == "INFO :      the run's folder is /srv/runs/a b"
    assert len(shown) == 3
    assert calls(tmp_path) == [["log", "7", "tls"], ["list", "tls", "--run-id", "7", "--format", "json"]]


def test_a_broken_connection_is_continued_without_repeated_lines(stand_in: Callable[..., Target]) -> None:
    shown: list[str] = []
    target = stand_in(
        log=[HEAD + LOG[:1] + BROKEN, HEAD[:1] + BROKEN, HEAD + LOG[:2] + BROKEN, HEAD + LOG],
        list=[listed("running"), "Error: unreachable", listed("running"), listed("finished:completed")],
    )
    assert follow(target, "7", shown.append).final == "test accuracy 53.20 %"
    assert [line[-7:] for line in shown] == [line.rstrip()[-7:] for line in LOG]


def test_a_superlink_that_is_unreachable(stand_in: Callable[..., Target]) -> None:
    with pytest.raises(RunError, match=r"run 7 can no longer be followed \(.*gone\); it may still continue"):
        follow(stand_in(log=[HEAD], list=["Error: gone"]), "7", print)


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
    stand_in: Callable[..., Target], status: str, details: str, log: list[str], reason: str
) -> None:
    done = follow(stand_in(log=[HEAD + log], list=[listed(status, details)]), "7", print)
    assert not done.completed
    assert done.reason.endswith(reason)
    assert "\n" not in done.reason


def test_ctrl_c_ends_the_following_process(stand_in: Callable[..., Target]) -> None:
    target = stand_in(log=[[*HEAD, LOG[0], "it stays"]])

    def show(line: str) -> None:
        if "stays" in line:
            raise KeyboardInterrupt

    before = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        follow(target, "7", show)
    assert time.monotonic() - before < 30


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
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("Flower was called"))
    monkeypatch.setattr("sys.argv", ["fedstride", "submit", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    err = capsys.readouterr().err
    assert message in err and len(err.strip().splitlines()) == 1


def test_the_last_lines(
    stand_in: Callable[..., Target], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = stand_in(
        run=[{"success": True, "run-id": "7"}], log=[HEAD + LOG], list=[listed("finished:completed")]
    )
    monkeypatch.setattr("lab.flower.target.named", lambda name: target)
    monkeypatch.setattr("sys.argv", ["fedstride", "submit", "tls", "rounds=1"])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert "run 7 submitted to 127.0.0.1:8000" in lines
    assert lines[-2:] == ["final test accuracy 53.20 %", "folder, on the SuperLink's machine: /srv/runs/a b"]


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_prints_how_to_follow_or_stop_the_run(
    stand_in: Callable[..., Target],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = stand_in(run=[{"success": True, "run-id": "7"}], log=[[*HEAD, LOG[0], "it stays"]])
    monkeypatch.setattr("lab.flower.target.named", lambda name: target)
    monkeypatch.setattr("sys.argv", ["fedstride", "submit", "tls", "rounds=1"])

    def press() -> None:
        record = tmp_path / "calls.jsonl"
        while not record.exists() or '["log"' not in record.read_text():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press, daemon=True).start()
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 130
    out = capsys.readouterr().out
    assert "no longer followed; the run continues" in out
    assert "fedstride logs --follow 7 tls" in out and "fedstride stop 7 tls" in out
