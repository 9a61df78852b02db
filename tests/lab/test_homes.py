"""Commands of a user whose home folder is not known, or cannot be used: they work, or say one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import strangers

ROOT = Path(__file__).parents[2]

COMMANDS = """
import contextlib, io, json, os, sys, traceback
from fedstride.processes import exits
from lab.cli.main import app

for home, command in json.loads(sys.argv[1]):
    os.environ.pop("HOME", None)
    os.environ |= {} if home is None else {"HOME": home}
    sys.argv[1:] = command
    errors, code, wrong = io.StringIO(), 0, ""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
        try:
            exits.run(app)
        except SystemExit as end:
            code = end.code or 0
        except Exception:
            wrong = traceback.format_exc()
    print(json.dumps([home, command, code, errors.getvalue(), wrong]), flush=True)
"""

AT = ["--superlink", "127.0.0.1:9", "--insecure", "--allow-root"]
WORK = (["list"], ["show", "fedlws"], ["run", "-m", "--dry-run", "seed=1,2"], ["certificates", "--help"])
NEED_A_HOME = (
    ["run", "--dry-run", "rounds=2"],
    ["runs"],
    ["nodes", "hospital"],
    ["submit", "hospital", "rounds=2"],
    ["submit", "--address", "127.0.0.1:9", "--insecure"],
    ["partition"],
    ["node", *AT],
    ["node-check", *AT],
    ["node-status"],
    ["node-log"],
    ["node-approve"],
    ["superlink", "--insecure"],
)


USE_A_HOME = ("runs", "submit", "node", "node-status", "superlink")


def said(tmp_path: Path, cases: list[tuple[str | None, list[str]]]) -> list[list[Any]]:
    """What each of these commands says with this HOME: home, command, exit code, errors, and a traceback."""
    done = strangers.run("-c", COMMANDS, json.dumps(cases), cwd=tmp_path, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def is_one_line(errors: str) -> bool:
    lines = [line for line in errors.splitlines() if line.startswith("error: ")]
    return len(lines) == 1 and "Traceback" not in errors


@pytest.mark.slow
def test_commands_without_a_known_home(tmp_path: Path) -> None:
    cases = [(home, command) for home in (None, "", "home", "~") for command in (*NEED_A_HOME, *WORK)]
    found = said(tmp_path, cases)
    assert [command for _, command, *_ in found] == [command for _, command in cases]
    for _, command, code, errors, wrong in found:
        assert not wrong, wrong
        if command in WORK:
            assert code == 0, (command, errors)
        else:
            assert code == 2 and is_one_line(errors), (command, code, errors)
            assert "home folder of user 4321 is not known" in errors and "set HOME" in errors, errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_commands_with_a_home_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("")
    (tmp_path / "read-only").mkdir(mode=0o500)
    (tmp_path / "nowhere").mkdir(mode=0o500)
    homes = [str(tmp_path / name) for name in ("nowhere/at/all", "a file", "read-only")]
    cases = [(home, command) for home in homes for command in NEED_A_HOME if command[0] in USE_A_HOME]
    cases.append((homes[1], ["partition"]))
    for home, command, code, errors, wrong in said(tmp_path, cases):
        assert not wrong, wrong
        assert code == 0 or command == ["node-status"] or is_one_line(errors), (command, code, errors)
        if command[0] in ("node", "superlink"):
            assert code == 2 and "FLWR_HOME" in errors and home in errors, errors
        if command[0] == "partition":
            assert "set FEDSTRIDE_CACHE" in errors and home in errors, errors


@pytest.mark.slow
def test_a_run_needs_no_home_if_its_folders_are_named(tmp_path: Path) -> None:
    given = ["rounds=1", "clients=2", "model=svm", "name=homeless"]
    done = strangers.run(
        *("-m", "lab.cli.main", "run", "--no-compare", *given),
        cwd=tmp_path,
        PYTHONPATH=str(ROOT),
        FEDSTRIDE_CACHE=str(tmp_path / "cache"),
        FEDSTRIDE_RUNS=str(tmp_path / "runs"),
    )
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache", "runs"]
    assert json.loads((tmp_path / "runs/homeless/status.json").read_text())["state"] == "completed"
