"""`fedstride runs`, `stop`, `logs` and `fetch` on runs of this machine, and their refusals."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from folders import Call, config, make

from fedstride.errors import ConfigError
from fedstride.processes.forks import children
from lab.results.run_folders import FETCHED, load
from lab.results.running_process import holder, interrupt
from server_app.records.run_folder import is_locked, lock

ROOT = Path(__file__).resolve().parents[3]
HOLD = (
    "import sys, time; from pathlib import Path; from server_app.records.run_folder import lock; "
    "f = lock(Path(sys.argv[1]))"
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: Path) -> Path:
    """A folder of runs: one completed, one failed, one that was killed; and no connection."""
    (home / "config.toml").unlink()
    folder = tmp_path / "runs"
    monkeypatch.setenv("FEDSTRIDE_RUNS", str(folder))
    make(folder / "good", config("seed=1"), [0.5, 0.9])
    make(folder / "bad", config("seed=2"), [0.5], state="failed", reason="RunError: no node")
    make(folder / "killed", config("seed=3"), [0.5], state="running")
    return folder


def entries(text: str) -> dict[str, dict[str, str]]:
    return {Path(each["run"]).name: each for each in json.loads(text)}


@pytest.mark.slow
def test_the_list_has_the_exact_state(root: Path, call: Call) -> None:
    code, out, _ = call("runs", "--format", "json")
    assert code == 0
    listed = entries(out)
    assert {name: each["state"] for name, each in listed.items()} == {
        "good": "completed",
        "bad": "failed",
        "killed": "lost",
    }
    assert listed["good"]["figure"] == "test accuracy 90.00 %"
    assert listed["good"]["rounds"] == "2 of 20"
    assert listed["good"]["reason"] == ""
    assert listed["good"]["by"] == (root / "good").owner()
    assert "RunError: no node" in listed["bad"]["reason"]
    assert "its process was killed" in listed["killed"]["reason"]
    _, text, _ = call("runs")
    assert "bad: failed (RunError: no node)" in text


@pytest.mark.slow
def test_a_run_is_running_while_a_process_holds_its_folder(root: Path, call: Call) -> None:
    folder = root / "killed"
    script = f"{HOLD}; print('held', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    assert load(folder).state == "running"
    with holder(folder) as found:
        assert found is not None and found[1] == process.pid
    assert call("stop", "killed")[0] == 0  # SIGINT: Python ends with a KeyboardInterrupt
    assert process.wait(100) != 0
    assert load(folder).state == "lost"


AS = {  # what starts the process, and what it does first
    "of another user": ([], "os.setuid(65534)"),
    "in another namespace of processes": (["unshare", "--pid", "--fork", "--kill-child"], "pass"),
}


@pytest.mark.slow
@pytest.mark.parametrize("whose", AS)
def test_a_process_that_is_not_one_of_ours_is_found(whose: str) -> None:
    """From outside of a container, with the number that it has here."""
    start, first = AS[whose]
    if os.geteuid() != 0 or subprocess.run([*start, "/bin/true"], capture_output=True, check=False).returncode:
        pytest.skip("a process like this needs more rights than this user has")
    folder = Path(tempfile.mkdtemp(prefix="fedstride-lock-"))  # pytest's folder is closed to other users
    folder.chmod(0o777)
    hold = HOLD.replace("f = lock", f"{first}; f = lock")
    script = f"import os; {hold}; print(os.getpid(), flush=True); time.sleep(60)"
    command = [*start, sys.executable, "-c", script, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout is not None and process.stdout.readline()
        with holder(folder) as found:
            assert found is not None
            outside = Path(f"/proc/{found[1]}/status").read_text()
            assert found[1] in (process.pid, *children(process.pid)) and "python" in outside
        interrupt(folder)
        assert process.wait(60) != 0
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder)


def locked_by_another(path: Path) -> subprocess.Popen[bytes]:
    """A process that holds a lock of this file, which is no run's."""
    script = "import fcntl, sys, time; f = open(sys.argv[1]); fcntl.flock(f, 2); fcntl.lockf(f, 1)"
    script += "; print('held', flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"held\n"
    return process


@pytest.fixture
def two_disks(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Two file systems, whose first files have the same inode."""
    disks = tmp_path / "one", tmp_path / "two"
    try:
        for disk in disks:
            disk.mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
            if subprocess.run(mount, capture_output=True, check=False).returncode:
                pytest.skip("mounting a file system needs more rights than this user has")
        yield disks
    finally:
        for disk in disks:
            subprocess.run(["umount", "-l", str(disk)], capture_output=True, check=False)


def test_a_process_with_a_lock_of_the_same_inode_on_another_disk_is_not_stopped(
    two_disks: tuple[Path, Path],
) -> None:
    folder, other = two_disks
    for disk in two_disks:
        (disk / ".lock").touch()
    assert (folder / ".lock").stat().st_ino == (other / ".lock").stat().st_ino
    innocent = locked_by_another(other / ".lock")
    try:
        with holder(folder) as found:
            assert found is None
        held = lock(folder)
        with holder(folder) as found:
            assert is_locked(folder) and found is not None and found[1] == os.getpid()
        held.close()
        assert not is_locked(folder)
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_lock_that_is_a_link_to_another_programs_file_stops_nobody(
    root: Path, tmp_path: Path, call: Call, link: Callable[[Path, Path], None]
) -> None:
    (tmp_path / "other").touch()
    innocent = locked_by_another(tmp_path / "other")
    try:
        link(tmp_path / "other", root / "good/.lock")
        code, _, err = call("stop", root / "good")
        assert code in (1, 2) and len(err.splitlines()) == 1
        assert innocent.poll() is None
    finally:
        innocent.kill()
        innocent.wait()


def test_a_run_that_ended_is_not_stopped(root: Path, call: Call) -> None:
    with pytest.raises(ConfigError, match="is not running"):
        interrupt(root / "good")
    assert call("stop", "good")[0] == 2


def test_a_fetched_run_is_as_it_was_when_it_was_fetched(root: Path) -> None:
    (root / "killed" / FETCHED).write_text(json.dumps({"state": "running", "fetched": "2026-01-01T10:00:00"}))
    run = load(root / "killed")
    assert run.state == "running"
    assert "when it was fetched, 2026-01-01T10:00:00" in run.remark


def test_logs_of_a_local_run(root: Path, call: Call) -> None:
    code, out, _ = call("logs", root / "good")
    assert code == 0
    assert out.count("round ") == 3
    assert out.endswith("good: completed\n")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["stop", "logs", "fetch"])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "'nowhere' is neither a run folder nor a run id: fedstride runs lists both"),
        (("7",), "name the connection"),
        (("7", "clinic"), "unknown connection 'clinic'"),
        (("7", "--address", "localhost"), "must be HOST:PORT"),
    ],
)
def test_refusals_are_one_line(
    root: Path, call: Call, verb: str, arguments: tuple[str, ...], message: str
) -> None:
    more = ("--insecure",) if "--address" in arguments else ()
    code, _, err = call(verb, *arguments, *more)
    assert code == 2
    assert err.count("\n") == 1
    assert message in err


def test_a_superlink_that_does_not_answer(root: Path, call: Call) -> None:
    code, _, err = call("logs", "7", "--address", "127.0.0.1:1", "--insecure")
    assert code == 1
    assert err.count("\n") == 1
    assert "no process listens on port 1 of 127.0.0.1" in err
