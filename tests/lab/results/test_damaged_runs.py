"""Commands on run folders that are damaged, unreadable or read-only: one line, an exit code, no traceback."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from folders import Call, config, make

from lab.results.run_folders import find_runs, load


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make(tmp_path / "run", config(), [0.5, 0.6, 0.7])


def damage(path: Path, number: int) -> None:
    lines = path.read_bytes().split(b"\n")
    lines[number - 1] = lines[number - 1].replace(b"round", b"rounD", 1)
    path.write_bytes(b"\n".join(lines))


@pytest.mark.slow
@pytest.mark.parametrize("command", [["table"], ["plot", "accuracy"], ["report"]])
def test_a_damaged_line_is_left_out_and_said_once(
    call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (run / "checkpoint").mkdir()
    damage(run / "metrics.jsonl", 3)
    code, _, err = call(*command, run)
    assert code == 0
    (line,) = [line for line in err.splitlines() if "damaged" in line]
    assert line == (
        f"note: {run / 'metrics.jsonl'} is damaged: 1 of 4 lines do not have their digest: line 3 (after round 1)"
        f"; these lines are not used; restore them with: fedstride resume {run}"
    )
    assert [row["round"] for row in load(run).rows] == [0, 1, 3]


def test_missing_last_lines_are_noticed(tmp_path: Path, run: Path) -> None:
    status = (run / "status.json").read_text()
    (run / "status.json").write_text(status.replace("{", '{"rounds": 4, ', 1))
    _, remarks = find_runs([run])
    assert "metrics.jsonl is damaged: it ends with round 3, but the run with round 4" in remarks[0]


@pytest.mark.slow
def test_damaged_lines_of_clients_are_in_the_report(call: Call, tmp_path: Path) -> None:
    clients = [{"round": 1, "client": k, "status": "rejected", "reason": "NaN 1"} for k in range(3)]
    folder = make(tmp_path / "run", config(), clients=clients, extra=lambda t: {"screening/rejected": 3})
    damage(folder / "clients.jsonl", 2)
    assert call("report", folder, "-o", tmp_path / "r.html")[0] == 0
    page = (tmp_path / "r.html").read_text()
    assert "2 times: NaN 1; " in page and "clients.jsonl is damaged: 1 of 3 lines" in page
    (folder / "clients.jsonl").unlink()
    (folder / "clients.jsonl").mkdir()
    assert call("report", folder, "-o", tmp_path / "r.html")[0] == 0
    assert "clients.jsonl cannot be read (Is a directory)" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("content", ["[]", "3", '{"seconds": 3}', '{"versions": []}'])
def test_a_status_of_another_form_is_named(call: Call, run: Path, content: str) -> None:
    (run / "status.json").write_text(content)
    code, _, err = call("table", run)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "status.json: it does not have the form of a run's status" in err


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A run folder on a real read-only file system."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system needs more rights than this user has")
    make(folder / "run", config(), [0.5])
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.slow
def test_commands_on_a_read_only_disk(call: Call, read_only: Path) -> None:
    assert call("table", read_only)[0] == 0
    assert call("show", "quickstart", f"resume={read_only / 'run'}")[0] == 0
    for command in (
        ["plot", "accuracy", read_only, "-o", read_only / "x.png"],
        ["report", read_only, "-o", read_only / "x.html"],
        ["run", "model=mlp", "clients=2", "rounds=1", f"out={read_only}", "--no-compare", "-q"],
    ):
        code, _, err = call(*command)
        assert (code, len(err.splitlines())) == (1, 1), err
        assert "Read-only file system" in err


@pytest.mark.slow
@pytest.mark.parametrize("name", ["config.yaml", "metrics.jsonl", "status.json"])
def test_a_folder_in_place_of_a_file_is_one_line(
    call: Call, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)  # `report` writes its page into the working directory
    (run / name).unlink()
    (run / name).mkdir()
    for command in (["table", run], ["report", run], ["resume", run], ["show", "quickstart", f"resume={run}"]):
        code, _, err = call(*command)
        assert "Traceback" not in err
        assert len(err.splitlines()) <= 1, err
        assert code in (1, 2) or (command[0], name) not in {("table", "config.yaml"), ("resume", "config.yaml")}
