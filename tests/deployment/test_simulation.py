"""The app in Flower's simulation with real processes: same bits, exit codes, no open door, no process left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from desk import SMALL, play, table, weights
from intruder import Door, doors, intrude
from pids import gone, is_alive
from processes import descendants, until

from lab.flower.simulation_process import PRIVATE

pytestmark = pytest.mark.slow


def fedstride(*arguments: str, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lab.cli.main", *arguments]
    env = os.environ | {"FEDSTRIDE_RUNS": str(cwd / "runs")} | variables
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=300, check=False)


def left_over(cwd: Path) -> list[str]:
    """Processes with this test's folder in their environment, or in the working folder of Ray."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if f"FEDSTRIDE_RUNS={cwd}/".encode() in (entry / "environ").read_bytes():
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


def test_it_uses_a_ray_of_its_own_in_a_short_folder(tmp_path: Path) -> None:
    """Not the cluster of the environment, which may not exist; nor a folder that is too long for Ray's sockets."""
    long = tmp_path / ("a-long-name" * 10)
    long.mkdir()
    done = fedstride(
        *("simulate", *SMALL, "rounds=1", "clients=2", "name=odd"),
        cwd=tmp_path,
        TMPDIR=str(long),
        RAY_ADDRESS="ray://head",
        RAY_TMPDIR=str(long),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(long.iterdir())


def test_it_prints_the_run_folder_and_leaves_no_process(simulated: Simulated) -> None:
    assert str(simulated.folder) in simulated.done.stdout
    assert "round" in simulated.done.stdout
    assert not left_over(simulated.cwd)


def test_status_and_log_are_kept(simulated: Simulated) -> None:
    assert json.loads((simulated.folder / "status.json").read_text())["state"] == "completed"
    assert "the run's folder is" in (simulated.folder / "flower.log").read_text()


def test_a_failed_run_has_exit_code_1_and_a_reason(tmp_path: Path) -> None:
    """The folder of runs cannot be created, since a file has its name."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the run's folder should be")
    done = fedstride("simulate", *SMALL, "rounds=1", f"out={blocked}/runs", cwd=tmp_path)
    assert done.returncode == 1
    assert "the run failed" in done.stderr
    assert "cannot be created" in done.stderr
    assert not left_over(tmp_path)


# ---------------------------------------------------------------- while it runs


class Going(NamedTuple):
    """A simulation whose clients train."""

    process: subprocess.Popen[bytes]
    below: list[int]
    doors: list[Door]


@pytest.fixture(scope="module")
def going(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Going]:
    """Started in a folder that looks like another clone, whose code must not be imported."""
    cwd = tmp_path_factory.mktemp("going")
    for package in ("client_app", "fedstride"):
        (cwd / package).mkdir()
        (cwd / package / "__init__.py").write_text("raise RuntimeError('this is another clone')")
    command = [sys.executable, "-P", "-m", "lab.cli.main", "simulate", *SMALL, "rounds=100000"]
    env = os.environ | {"FEDSTRIDE_RUNS": str(cwd / "runs")}
    with (cwd / "log").open("wb") as log:
        process = subprocess.Popen(command, cwd=cwd, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        until(
            lambda: process.poll() or b"\n     3 " in (cwd / "log").read_bytes() or None, "round of the simulation"
        )
        assert process.poll() is None, (cwd / "log").read_text()
        below = descendants(process.pid)
        yield Going(process, below, doors(below))
    finally:
        process.kill()
        process.wait()
        for pid in descendants(process.pid):
            os.kill(pid, 9)


def test_it_listens_on_the_loopback_only(going: Going) -> None:
    """Ray alone listens: the control store, a node with its objects, its agent, and workers. No SuperLink does."""
    assert len([door for door in going.doors if door.kind == "tcp"]) >= 5
    assert [door for door in going.doors if not door.is_local] == []
    assert not [pid for pid in going.below if b"superlink" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_another_user_gets_nothing_from_it(going: Going) -> None:
    pytest.importorskip("grpc")
    assert intrude(going.doors) == []


def test_without_the_token_not_even_its_user_joins_the_cluster(going: Going) -> None:
    """Over the way by which functions are replaced: as a driver of the same cluster."""
    store = next(
        door.port for door in going.doors if b"gcs_server" in Path(f"/proc/{door.pid}/cmdline").read_bytes()
    )
    script = f"import ray; ray.init(address='127.0.0.1:{store}', log_to_driver=False)"
    env = os.environ | PRIVATE | {"RAY_AUTH_TOKEN": "0" * 64}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode != 0 and "token" in done.stderr, done.stderr


def test_the_token_is_in_no_argument(going: Going) -> None:
    (token,) = {
        value.removeprefix(b"RAY_AUTH_TOKEN=")
        for pid in going.below
        for value in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        if value.startswith(b"RAY_AUTH_TOKEN=")
    }
    assert len(token) == 64
    assert not [pid for pid in going.below if token in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_nothing_is_left_when_the_command_is_killed(going: Going) -> None:
    """The last test of `going`. With a process that has left the session of the run, and its parent."""
    assert all(map(is_alive, going.below))
    going.process.kill()
    assert gone(*going.below, seconds=30.0)
