"""Files that are written line by line, on a disk that is temporarily full or read-only."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from desk import play, resume, table, weights

from fedstride.errors import RunError
from fedstride.files import atomic
from fedstride.files.chained_lines import chained
from server_app import run_files
from server_app.records.line_files import LineFile, read_lines
from server_app.rounds import Round


def test_an_incomplete_line_is_removed_before_the_next_write(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "x.jsonl"
    lines = LineFile(path)
    first, second, third = chained([{"round": 1}, {"round": 2}, {"round": 3}])
    lines.append([first])
    original = os.write

    def full(descriptor: int, content: bytes) -> int:
        if len(content) > 3:
            return original(descriptor, content[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space"):
        lines.append([second])
    assert read_lines(path) == [{"round": 1}]
    monkeypatch.setattr(os, "write", original)
    lines.append([third])
    assert read_lines(path) == [{"round": 1}, {"round": 2}, {"round": 3}]


def test_lines_are_appended_to_an_existing_file(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    first, second = chained([{"round": 1}, {"round": 2}])
    path.write_text(first + "\n")
    LineFile(path).append([second])
    assert len(read_lines(path)) == 2


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 8 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small file system needs more rights than this user has")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


class At:
    """An observer that calls a function after a given round."""

    def __init__(self, acts: dict[int, object]) -> None:
        self.acts = acts

    def replied(self, server_round: int, done: int, total: int) -> None: ...

    def round_done(self, done: Round) -> None:
        act = self.acts.get(done.number)
        if act is not None:
            act()  # type: ignore[operator]


def fill(path: Path) -> None:
    with path.open("wb") as file:
        while True:
            file.write(b"x" * 65536)
            file.flush()


@pytest.mark.slow
@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_disk_in_trouble_costs_at_most_the_checkpoint(small_disk: Path, tmp_path: Path, trouble, caplog) -> None:
    ballast = small_disk / "ballast"

    def begin() -> None:
        if trouble == "full":
            with pytest.raises(OSError, match="No space"):
                fill(ballast)
        else:
            subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    def end() -> None:
        if trouble == "full":
            ballast.unlink()
        else:
            subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)

    outcome = play(small_disk, "rounds=5", "name=part", observers=[At({1: begin, 4: end})])
    whole = play(tmp_path, "rounds=5", "name=whole")
    assert weights(outcome.folder) == weights(whole.folder)
    assert table(outcome.folder) == table(whole.folder)
    assert len(read_lines(outcome.folder / "clients.jsonl")) == 20
    for server_round in (2, 3, 4):
        assert f"round {server_round}: the checkpoint in" in caplog.text
    assert json.loads((outcome.folder / "status.json").read_text())["state"] == "completed"
    assert (outcome.folder / "checkpoint/round-000005/state.json").is_file()


@pytest.mark.slow
def test_a_disk_that_stays_full_fails_the_run_and_the_message_says_how_to_continue(
    small_disk: Path, tmp_path: Path
) -> None:
    ballast = small_disk / "ballast"

    def begin() -> None:
        with pytest.raises(OSError, match="No space"):
            fill(ballast)

    with pytest.raises(RunError) as error:
        play(small_disk, "rounds=3", "name=part", "seed=2", observers=[At({1: begin})])
    folder = small_disk / "part"
    message = str(error.value)
    assert message.startswith("the run is completed, but ")
    assert "the checkpoint" in message and "No space left on device" in message and "\n" not in message
    assert message.endswith(f"the newest checkpoint is that of round 1: fedstride resume {folder}")
    ballast.unlink()  # more space is needed: three checkpoints exist for a moment
    subprocess.run(["mount", "-o", "remount,size=24m", str(small_disk)], check=True)
    resume(folder)
    whole = play(tmp_path, "rounds=3", "name=whole", "seed=2").folder
    assert weights(folder) == weights(whole) and table(folder) == table(whole)
    assert (folder / "best.safetensors").read_bytes() == (whole / "best.safetensors").read_bytes()
    assert not list(folder.glob(".*.[0-9]*"))


def test_a_checkpoint_that_cannot_be_written_is_in_the_status(tmp_path: Path) -> None:
    """A file has the place of the folder, so that only checkpoints fail."""

    def begin() -> None:
        (tmp_path / "part/checkpoint").rename(tmp_path / "elsewhere")
        (tmp_path / "part/checkpoint").touch()

    with pytest.raises(RunError, match=r"the checkpoint.* cannot be written"):
        play(tmp_path, "rounds=2", "name=part", observers=[At({1: begin})])
    status = json.loads((tmp_path / "part/status.json").read_text())
    assert status["state"] == "failed"
    assert "the checkpoint" in status["reason"] and "newest checkpoint is that of round 1" in status["reason"]


def test_a_best_model_that_could_not_be_written_is_written_later(tmp_path: Path, monkeypatch) -> None:
    original, failures = run_files.save_model, []

    def full_once(path: Path, *arguments) -> None:
        if path.name == "best.safetensors" and not failures:
            failures.append(path)
            raise OSError(28, "No space left on device")
        original(path, *arguments)

    monkeypatch.setattr(run_files, "save_model", full_once)
    folder = play(tmp_path, "rounds=1", "name=part").folder
    assert failures and (folder / "best.safetensors").read_bytes() == weights(folder)


@pytest.mark.slow
def test_rows_of_a_table_that_could_not_be_rewritten_are_not_lost(tmp_path: Path, monkeypatch) -> None:
    """A new column appears while the disk is full: the next row, without it, must not be appended alone."""
    original, failures = atomic.write, []

    def full_once(path: Path, content: bytes, **options: Any) -> None:
        if path.name == "metrics.csv" and len(failures) < 2:
            failures.append(path)
            raise OSError(28, "No space left on device")
        original(path, content, **options)

    monkeypatch.setattr(atomic, "write", full_once)
    folder = play(tmp_path, "rounds=3", "evaluate_every=2", "name=part").folder
    assert len(failures) == 2
    assert [row[0] for row in table(folder)] == ["round", "0", "1", "2", "3"]


@pytest.mark.slow
def test_a_model_that_cannot_be_written_fails_the_run_and_can_be_had_later(tmp_path: Path, monkeypatch) -> None:
    original = run_files.save_model

    def full(path: Path, *arguments) -> None:
        if path.name == "model.safetensors":
            raise OSError(28, "No space left on device")
        original(path, *arguments)

    monkeypatch.setattr(run_files, "save_model", full)
    with pytest.raises(RunError, match=r"model.safetensors cannot be written.*fedstride resume"):
        play(tmp_path, "rounds=2", "name=part")
    assert json.loads((tmp_path / "part/status.json").read_text())["state"] == "failed"
    monkeypatch.setattr(run_files, "save_model", original)
    resume(tmp_path / "part")
    assert weights(tmp_path / "part") == weights(play(tmp_path, "rounds=2", "name=whole").folder)


@pytest.mark.slow
def test_a_run_killed_before_its_model_was_written_can_be_resumed(tmp_path: Path) -> None:
    whole = play(tmp_path, "rounds=2", "name=whole").folder
    (before := weights(whole))
    (whole / "model.safetensors").unlink()
    resume(whole)
    assert weights(whole) == before
