"""Ctrl-C on the real command: it ends after the current client, keeps its results, and prints how to resume."""

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

from server_app.lines import read_lines

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ctrl_c")]

COMMAND = [sys.executable, "-m", "lab.cli.main"]


def wait_for_rounds(folder: Path, rounds: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while len(read_lines(folder / "metrics.jsonl")) <= rounds and time.monotonic() < deadline:
        assert process.poll() is None, "it ended before it could be interrupted"
        time.sleep(0.01)


def test_ctrl_c_and_resume(tmp_path: Path) -> None:
    given = [*SMALL, "rounds=40", "client.local_steps=30"]
    env = os.environ | {"PYTHONUNBUFFERED": "1"}
    command = [*COMMAND, "run", *given, f"out={tmp_path}", "name=part"]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_rounds(tmp_path / "part", 5, process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert f"resume with: fedstride resume {tmp_path / 'part'}" in out
    assert "Traceback" not in err
    assert json.loads((tmp_path / "part/status.json").read_text())["state"] == "interrupted"
    subprocess.run([*COMMAND, "resume", str(tmp_path / "part"), "-q"], check=True, timeout=120)
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
    first = tmp_path / "sweep/quickstart-fednnnn-sgd-seed1"
    wait_for_rounds(first, 2, process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert f"resume with: fedstride resume {first}" in out
    assert out.count("not started: fedstride run") == 2
    assert json.loads((first / "status.json").read_text())["state"] == "interrupted"
