"""Ctrl-C and SIGTERM on the real command: it keeps its results, says how it ended, and prints how to resume."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from desk import SMALL, play, table, weights

from server_app.records.line_files import read_lines

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ctrl_c")]

COMMAND = [sys.executable, "-m", "lab.cli.main"]


def wait_for_rounds(folder: Path, rounds: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 400
    while len(read_lines(folder / "metrics.jsonl")) <= rounds and time.monotonic() < deadline:
        assert process.poll() is None, "it ended before it could be interrupted"
        time.sleep(0.01)
    assert len(read_lines(folder / "metrics.jsonl")) > rounds, "the machine is too busy"


def test_ctrl_c_and_resume(tmp_path: Path) -> None:
    given = [*SMALL, "rounds=40", "client.local_steps=30"]
    env = os.environ | {"PYTHONUNBUFFERED": "1"}
    command = [*COMMAND, "run", *given, f"out={tmp_path}", "name=part"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_rounds(tmp_path / "part", 5, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert f"resume with: fedstride resume {tmp_path / 'part'}" in out
    assert "Traceback" not in err
    assert json.loads((tmp_path / "part/status.json").read_text())["state"] == "interrupted"
    subprocess.run([*COMMAND, "resume", str(tmp_path / "part"), "-q"], check=True, timeout=400)
    whole = play(tmp_path, *given, "name=whole").folder
    assert weights(whole) == weights(tmp_path / "part")
    assert table(whole) == table(tmp_path / "part")


def test_ctrl_c_in_a_sweep(tmp_path: Path) -> None:
    given = [
        *SMALL,
        "rounds=60",
        "client.local_steps=60",
        "seed=1,2,3",
        f"out={tmp_path / 'sweep'}",
        "--jobs",
        "1",
    ]
    # Its own process group, so that the signal reaches the workers, as from a terminal.
    process = subprocess.Popen(
        [*COMMAND, "run", "-m", *given],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    first = tmp_path / "sweep/mnist5k-dirichlet-fednnnn-sgd-seed1"
    wait_for_rounds(first, 2, process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert f"resume with: fedstride resume {first}" in out
    assert out.count("not started: fedstride run") == 2
    assert json.loads((first / "status.json").read_text())["state"] == "interrupted"


def start(*arguments: str) -> subprocess.Popen[str]:
    env = os.environ | {"PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [*COMMAND, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def state_of(folder: Path) -> str:
    return str(json.loads((folder / "status.json").read_text())["state"])


def test_sigterm_and_resume(tmp_path: Path) -> None:
    """The comparison run ends with the run; `resume` can be ended, too."""
    given = [*SMALL, "client.local_steps=30"]
    part = tmp_path / "part"
    process = start("run", *given, "rounds=2000", f"out={tmp_path}", "name=part")
    wait_for_rounds(part / "fedavg", 1, process)
    wait_for_rounds(part, 2, process)
    for _ in range(2):
        process.terminate()
        out, err = process.communicate(timeout=120)
        assert process.returncode == 143, err
        assert f"resume with: fedstride resume {part}" in out
        assert err == "terminated\n"
        assert state_of(part) == "terminated"
        process = start("resume", str(part))
        wait_for_rounds(part, json.loads((part / "status.json").read_text())["rounds"] + 1, process)
    process.kill()
    process.communicate(timeout=120)
    assert state_of(part / "fedavg") == "terminated"
    last = f"rounds={len(read_lines(part / 'metrics.jsonl')) + 3}"
    subprocess.run([*COMMAND, "resume", str(part), "-q", last], check=True, timeout=400)
    whole = play(tmp_path, *given, last, "name=whole").folder
    assert weights(whole) == weights(part)
    assert table(whole) == table(part)


def test_sigterm_reaches_the_workers_of_a_sweep(tmp_path: Path) -> None:
    """It is sent to the command alone, as `kill` does it."""
    given = [*SMALL, "rounds=200", "client.local_steps=60", "seed=1,2,3", f"out={tmp_path}", "--jobs", "2"]
    process = start("run", "-m", *given)
    folders = [tmp_path / f"mnist5k-dirichlet-fednnnn-sgd-seed{seed}" for seed in (1, 2)]
    for folder in folders:
        wait_for_rounds(folder, 2, process)
    process.terminate()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143, err
    for folder in folders:
        assert f"resume with: fedstride resume {folder}" in out
        assert state_of(folder) == "terminated"
    assert out.count("not started: fedstride run") == 1


def test_sigterm_before_the_workers_of_a_sweep_have_started(tmp_path: Path) -> None:
    process = start("run", "-m", *SMALL, "rounds=200", "seed=1,2,3", f"out={tmp_path / 'sweep'}", "--jobs", "1")
    assert process.stdout is not None
    while "started" not in process.stdout.readline():
        pass
    process.terminate()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143, err
    assert "0 of 3 runs completed" in out


def test_sigterm_in_the_simulation(tmp_path: Path) -> None:
    process = start("simulate", *SMALL, "rounds=500", f"out={tmp_path}", "name=part")
    wait_for_rounds(tmp_path / "part", 2, process)
    process.terminate()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 143, err
    assert f"resume with: fedstride resume {tmp_path / 'part'}" in out
    assert state_of(tmp_path / "part") == "terminated"
