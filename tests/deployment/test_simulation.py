"""The same app in Flower's simulation, by real processes: same bits, true exit code, nothing left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from desk import SMALL, play, table, weights

from lab.flower.simulation import MARK

pytestmark = pytest.mark.slow


def fedstride(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lab.cli.main", *arguments]
    env = os.environ | {"FEDSTRIDE_RUNS": str(cwd / "runs")}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)


def left_over(cwd: Path) -> list[str]:
    """Processes that carry the mark of a simulation and this test's folder in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
            if f"{MARK}=".encode() in environment and f"FEDSTRIDE_RUNS={cwd}/".encode() in environment:
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended, or is another user's
            continue
    return found


@pytest.mark.parametrize(
    "rule", [["strategy=fednnnn"], ["strategy=fedalr+two_d_lrd", "client=fednlr", "cohort=3"]]
)
def test_simulation_has_the_bits_of_the_desk(tmp_path: Path, rule: list[str]) -> None:
    given = [*SMALL, "rounds=3", *rule]
    done = fedstride("simulate", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (tmp_path / "runs").iterdir()
    desk = play(tmp_path / "desk", *given).folder
    assert weights(folder) == weights(desk)
    assert table(folder) == table(desk)
    assert str(folder) in done.stdout
    assert "round" in done.stdout
    assert not left_over(tmp_path)


def test_a_failed_run_has_exit_code_1_and_a_reason(tmp_path: Path) -> None:
    """The clients refuse to work on a device that only they lack."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the run's folder should be")
    done = fedstride("simulate", *SMALL, "rounds=1", f"out={blocked}/runs", cwd=tmp_path)
    assert done.returncode == 1
    assert "the run failed" in done.stderr
    assert "cannot be made" in done.stderr
    assert not left_over(tmp_path)


def test_status_and_log_are_kept(tmp_path: Path) -> None:
    done = fedstride("simulate", *SMALL, "rounds=1", "name=kept", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = tmp_path / "runs/kept"
    assert json.loads((folder / "status.json").read_text())["state"] == "completed"
    assert "Starting Flower Simulation" in (folder / "flower.log").read_text()
