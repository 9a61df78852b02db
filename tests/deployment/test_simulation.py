"""The app in Flower's simulation with real processes: same bits, exit codes, no process left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from desk import SMALL, play, table, weights

from lab.flower.simulation import MARK

pytestmark = pytest.mark.slow


def fedstride(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lab.cli.main", *arguments]
    env = os.environ | {"FEDSTRIDE_RUNS": str(cwd / "runs")}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)


def left_over(cwd: Path) -> list[str]:
    """Processes with the mark of a simulation and this test's folder in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            environment = (entry / "environ").read_bytes()
            if f"{MARK}=".encode() in environment and f"FEDSTRIDE_RUNS={cwd}/".encode() in environment:
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:  # it has ended, or belongs to another user
            continue
    return found


class Simulated(NamedTuple):
    """A run in the simulation, and the folder in which it was started."""

    given: list[str]
    done: subprocess.CompletedProcess[str]
    cwd: Path
    folder: Path


RULES = {
    "fednnnn": ["strategy=fednnnn"],
    "kept": ["strategy=fedalr+two_d_lrd", "strategy.local_steps=3", "client=fednlr", "cohort=3", "name=kept"],
}


@pytest.fixture(scope="module", params=RULES)
def simulated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Simulated:
    """One simulation per rule, shared by several tests."""
    cwd = tmp_path_factory.mktemp(request.param)
    given = [*SMALL, "rounds=3", *RULES[request.param]]
    done = fedstride("simulate", *given, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    (folder,) = (cwd / "runs").iterdir()
    assert (folder.name == "kept") == ("name=kept" in given)
    return Simulated(given, done, cwd, folder)


def test_simulation_has_the_bits_of_a_run_in_process(simulated: Simulated, tmp_path: Path) -> None:
    local = play(tmp_path, *simulated.given).folder
    assert weights(simulated.folder) == weights(local)
    assert table(simulated.folder) == table(local)


def test_a_run_resumed_in_the_simulation_has_its_client_states(tmp_path: Path) -> None:
    """SCAFFOLD, two of three clients per round, one round and then two more: the bits of an uninterrupted run."""
    given = [*SMALL, "clients=3", "cohort=2", "strategy=scaffold", "name=begun"]
    first = fedstride("simulate", *given, "rounds=1", cwd=tmp_path)
    assert first.returncode == 0, first.stdout + first.stderr
    second = fedstride("simulate", "resume=runs/begun", "rounds=3", cwd=tmp_path)
    assert second.returncode == 0, second.stdout + second.stderr
    local = play(tmp_path / "desk", *given, "rounds=3").folder
    assert weights(tmp_path / "runs/begun") == weights(local)
    assert table(tmp_path / "runs/begun") == table(local)


def test_it_prints_the_run_folder_and_leaves_no_process(simulated: Simulated) -> None:
    assert str(simulated.folder) in simulated.done.stdout
    assert "round" in simulated.done.stdout
    assert not left_over(simulated.cwd)


def test_status_and_log_are_kept(simulated: Simulated) -> None:
    assert json.loads((simulated.folder / "status.json").read_text())["state"] == "completed"
    assert "Starting Flower Simulation" in (simulated.folder / "flower.log").read_text()


def test_a_failed_run_has_exit_code_1_and_a_reason(tmp_path: Path) -> None:
    """The folder of runs cannot be created, since a file has its name."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the run's folder should be")
    done = fedstride("simulate", *SMALL, "rounds=1", f"out={blocked}/runs", cwd=tmp_path)
    assert done.returncode == 1
    assert "the run failed" in done.stderr
    assert "cannot be created" in done.stderr
    assert not left_over(tmp_path)
