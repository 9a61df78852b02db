"""A sweep that was killed goes on, with the bits of a whole one; and what it does not take for its own."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from desk import SMALL, table, weights
from pids import killed_at

from fedstride.errors import ConfigError
from lab.engine.sweep_combinations import checked, plan
from server_app.records.run_folder import is_locked, lock

pytestmark = pytest.mark.slow

COMMAND = (sys.executable, "-m", "lab.cli.main", "run", "-m", "--jobs", "1")
GIVEN = (*SMALL, "rounds=8", "strategy=fednnnn", "seed=1,2,3,4")
NAMES = [f"mnist5k-dirichlet-fednnnn-sgd-seed{seed}" for seed in (1, 2, 3, 4)]


def start(out: Path, *more: str) -> subprocess.Popen[str]:
    command = [*COMMAND, *GIVEN, f"out={out}", *more]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=subprocess.STDOUT, text=True, start_new_session=True)


def written(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


def said(process: subprocess.Popen[str]) -> str:
    text = process.communicate(timeout=240)[0]
    assert process.returncode == 0, text
    return text


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep that was not interrupted."""
    out = tmp_path_factory.mktemp("whole")
    said(start(out))
    return out


def test_a_killed_sweep_goes_on_with_the_same_bits(whole: Path, tmp_path: Path) -> None:
    process = start(tmp_path)
    second = tmp_path / NAMES[1] / "checkpoint/round-000003"
    killed_at(process, second)
    third = tmp_path / NAMES[2]  # as if it had been killed in its first round
    third.mkdir()
    for name in ("config.yaml", "status.json"):
        shutil.copy(whole / NAMES[2] / name, third)
    (third / "status.json").write_text('{"state": "running"}')
    (tmp_path / NAMES[3]).mkdir()  # and before it wrote anything
    first = written(tmp_path / NAMES[0])

    text = said(start(tmp_path, "--resume"))
    assert "1 of 4 runs are complete already" in text and "3 runs, 1 at a time" in text
    assert "4 of 4 runs completed" in text
    for name in NAMES:
        assert weights(tmp_path / name) == weights(whole / name)
        assert table(tmp_path / name) == table(whole / name)
    assert written(tmp_path / NAMES[0]) == first


def another_setting(folder: Path) -> str:
    return "client.lr=0.2"


def a_value_that_was_open(folder: Path) -> str:
    return "target=0.99"


def fewer_rounds(folder: Path) -> str:
    return "rounds=4"


def other_files(folder: Path) -> str:
    (folder / "status.json").unlink()
    (folder / "metrics.jsonl").unlink()
    return "rounds=8"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (another_setting, "has a run with client.lr = 0.05, not 0.2: choose another out=FOLDER"),
        (a_value_that_was_open, "has a run with target = None, not 0.99: choose another out=FOLDER"),
        (fewer_rounds, "has a run of 8 rounds, more than rounds = 4: choose another out=FOLDER"),
        (other_files, "is not a run of this command: move it away, or choose another out=FOLDER"),
    ],
)
def test_a_folder_with_anything_else_is_left_alone(
    whole: Path, tmp_path: Path, change: Callable[[Path], str], reason: str
) -> None:
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    more = change(out / NAMES[1])
    before = sorted(out.rglob("*"))
    with pytest.raises(ConfigError, match=f"^{out}/.* {reason}$"):
        plan([*GIVEN, f"out={out}", more], resume=True)
    assert sorted(out.rglob("*")) == before


def test_a_run_that_another_process_writes_is_left_alone(whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "out")
    locked = lock(tmp_path / "out" / NAMES[2])
    with locked, pytest.raises(ConfigError, match=f"{NAMES[2]} is being written to by another process: wait"):
        plan([*GIVEN, f"out={tmp_path / 'out'}"], resume=True)


def test_who_looks_at_a_lock_does_not_keep_others_away(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    with (tmp_path / ".lock").open() as file:  # as `is_locked` has it for a moment
        fcntl.flock(file, fcntl.LOCK_SH)
        threading.Timer(0.03, lambda: fcntl.flock(file, fcntl.LOCK_UN)).start()
        with lock(tmp_path):
            assert is_locked(tmp_path)


def test_a_sweep_is_resumed_in_its_folder_only() -> None:
    with pytest.raises(ConfigError, match="a sweep is resumed in its folder: name it, as in out="):
        plan(GIVEN, resume=True)
    process = subprocess.run(
        [sys.executable, "-m", "lab.cli.main", "run", *SMALL, "--resume"], capture_output=True, text=True
    )
    assert process.returncode == 2 and process.stderr.count("\n") == 1
    assert "--resume" in process.stderr and "fedstride resume FOLDER" in process.stderr


def test_nothing_is_removed_by_a_plan(whole: Path, tmp_path: Path) -> None:
    """As of `--dry-run`: what was begun remains until the sweep starts."""
    begun = tmp_path / NAMES[0]
    shutil.copytree(whole / NAMES[0], begun)
    shutil.rmtree(begun / "checkpoint")
    (begun / "metrics.jsonl").unlink()
    (begun / "status.json").write_text('{"state": "running"}')
    planned = plan([*GIVEN, f"out={tmp_path}"], resume=True)
    assert [job.folder.name for job in planned.jobs] == NAMES and begun.exists()
    with lock(begun), pytest.raises(ConfigError, match="still in progress"):  # begun meanwhile by another process
        checked(planned)
    assert (begun / "status.json").exists()
    assert checked(planned).jobs[0].config.resume is None and not begun.exists()
