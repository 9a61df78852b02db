"""A resumed run with damaged records: what is restored, what is lost, and what stays as it was."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from desk import StopAfter, play, resume, table, weights

from fedstride.errors import CheckpointError
from fedstride.files.chained_lines import chained
from server_app import preparation
from server_app.config.compose import compose
from server_app.records.checkpoint import read_checkpoint
from server_app.records.line_files import find_lines, read_lines

RUN = ("cohort=2", "strategy=fednnnn", "client.local_steps=1")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("whole"), "rounds=4", *RUN).folder


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("stopped")
    with pytest.raises(KeyboardInterrupt):
        play(root, "rounds=4", "name=part", *RUN, observers=[StopAfter(3)])
    return root / "part"


@pytest.fixture
def part(stopped: Path, tmp_path: Path) -> Path:
    """A run of four rounds that was interrupted after three."""
    return Path(shutil.copytree(stopped, tmp_path / "part"))


def notes(folder: Path) -> tuple[str, ...]:
    return preparation.prepare(compose([f"resume='{folder}'"])).notes


def without_seconds(path: Path) -> list[dict[str, Any]]:
    return [{key: v for key, v in row.items() if not key.startswith("seconds/")} for row in read_lines(path)]


def flip(path: Path, number: int) -> bytes:
    """Change a bit in a line; the file's content after it."""
    lines = path.read_bytes().split(b"\n")
    lines[number - 1] = lines[number - 1][:9] + bytes([lines[number - 1][9] ^ 1]) + lines[number - 1][10:]
    path.write_bytes(b"\n".join(lines))
    return path.read_bytes()


def drop(path: Path, number: int) -> bytes:
    lines = path.read_bytes().split(b"\n")
    del lines[number - 1]
    path.write_bytes(b"\n".join(lines))
    return path.read_bytes()


def last_lost(path: Path, number: int) -> bytes:
    path.write_bytes(b"".join(line + b"\n" for line in path.read_bytes().split(b"\n")[:-2]))
    return path.read_bytes()


def empty(path: Path, number: int) -> bytes:
    path.write_bytes(b"")
    return b""


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, drop, last_lost, empty])
def test_damaged_metrics_are_restored_from_their_copy(
    whole: Path, part: Path, damage: Callable[[Path, int], bytes]
) -> None:
    before = (part / "metrics.jsonl").read_bytes()
    damaged = damage(part / "metrics.jsonl", 3)
    (note,) = notes(part)
    assert note.startswith(f"{part / 'metrics.jsonl'} is damaged: ")
    assert "restored from" in note and "kept as metrics.jsonl.damaged" in note and "\n" not in note
    resume(part)
    assert (part / "metrics.jsonl").read_bytes().startswith(before)
    assert (part / "metrics.jsonl.damaged").read_bytes() == damaged
    assert without_seconds(part / "metrics.jsonl") == without_seconds(whole / "metrics.jsonl")
    assert without_seconds(part / "clients.jsonl") == without_seconds(whole / "clients.jsonl")
    assert weights(part) == weights(whole) and table(part) == table(whole)
    assert notes(part) == ()  # it is said once


@pytest.mark.slow
def test_metrics_that_are_gone_are_restored(whole: Path, part: Path) -> None:
    (part / "metrics.jsonl").unlink()
    assert f"{part / 'metrics.jsonl'} is damaged: it is missing; they are restored from" in notes(part)[0]
    resume(part)
    assert table(part) == table(whole)
    assert not (part / "metrics.jsonl.damaged").exists()


@pytest.mark.slow
def test_a_round_whose_line_is_damaged_twice_has_no_row(whole: Path, part: Path) -> None:
    """The run goes on with the same bits; its metrics.csv, which has the figures, is kept."""
    before = (part / "metrics.csv").read_text()
    for path in (part / "metrics.jsonl", part / "checkpoint/metrics.jsonl"):
        flip(path, 2)
    (note,) = notes(part)
    assert "line 2 (after round 0)" in note
    assert "`best`, `target` and `patience` are decided without round 1" in note
    resume(part)
    assert [row["round"] for row in read_lines(part / "metrics.jsonl")] == [0, 2, 3, 4]
    assert weights(part) == weights(whole)
    assert (part / "metrics.csv.before").read_text() == before
    assert find_lines(part / "metrics.jsonl").fault is None
    names = {path.name for path in part.iterdir()}
    assert notes(part) == ("`best`, `target` and `patience` are decided without round 1",)
    resume(part)
    assert {path.name for path in part.iterdir()} == names  # nothing is damaged any more


@pytest.mark.slow
def test_the_row_of_the_checkpoint_itself_is_in_the_checkpoint(whole: Path, part: Path) -> None:
    for path in (part / "metrics.jsonl", part / "checkpoint/metrics.jsonl"):
        empty(path, 0)
    assert "without round 0-2" in notes(part)[0]
    resume(part)
    assert [row["round"] for row in read_lines(part / "metrics.jsonl")] == [3, 4]
    assert weights(part) == weights(whole)


@pytest.mark.slow
@pytest.mark.parametrize("damage", [flip, drop, last_lost])
def test_damaged_lines_of_clients_cost_themselves(
    whole: Path, part: Path, damage: Callable[[Path, int], bytes]
) -> None:
    damaged = damage(part / "clients.jsonl", 2)
    (note,) = notes(part)
    assert note.startswith(f"{part / 'clients.jsonl'} is damaged: ")
    assert "the run continues without these lines; the damaged file is kept as clients.jsonl.damaged" in note
    resume(part)
    assert (part / "clients.jsonl.damaged").read_bytes() == damaged
    assert len(read_lines(part / "clients.jsonl")) == 7
    assert find_lines(part / "clients.jsonl").fault is None
    assert weights(part) == weights(whole) and table(part) == table(whole)
    assert notes(part) == ()


@pytest.mark.slow
def test_each_damaged_file_is_kept(part: Path) -> None:
    first = flip(part / "metrics.jsonl", 2)
    resume(part)
    second = flip(part / "metrics.jsonl", 3)
    assert "metrics.jsonl.damaged-2" in notes(part)[0]
    resume(part)
    assert (part / "metrics.jsonl.damaged").read_bytes() == first
    assert (part / "metrics.jsonl.damaged-2").read_bytes() == second


@pytest.mark.slow
def test_damage_after_the_checkpoint_is_repeated(whole: Path, part: Path) -> None:
    shutil.rmtree(part / "checkpoint/round-000003")
    flip(part / "metrics.jsonl", 4)
    assert notes(part) == ()
    resume(part)
    assert without_seconds(part / "metrics.jsonl") == without_seconds(whole / "metrics.jsonl")


@pytest.mark.slow
def test_lines_without_digests_do_not_verify(whole: Path, part: Path) -> None:
    """Such as those of another version: the copy has none either."""
    for path in (part / "metrics.jsonl", part / "checkpoint/metrics.jsonl"):
        path.write_text('{"round": 0}\n{"round": 1}\n')
    assert "2 of 2 lines do not have their digest" in notes(part)[0]
    resume(part)
    assert weights(part) == weights(whole)


def test_lines_of_another_run_are_not_used(part: Path, whole: Path) -> None:
    """They verify, but do not lead to the checkpoint's last line."""
    rows = read_lines(part / "metrics.jsonl")
    foreign = chained([{**row, "test/accuracy": 1.0} for row in rows])
    (part / "metrics.jsonl").write_text("".join(line + "\n" for line in foreign))
    assert "restored from" in notes(part)[0]
    resume(part)
    assert table(part) == table(whole)


def test_a_file_that_cannot_be_read_is_named(part: Path) -> None:
    (part / "clients.jsonl").unlink()
    (part / "clients.jsonl").mkdir()
    with pytest.raises(
        CheckpointError, match=r"clients.jsonl cannot be read \(Is a directory\), so the run cannot"
    ):
        notes(part)


# ---------------------------------------------------------------- the newest checkpoint cannot be used


def as_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("a file")


def folder_inside(folder: Path) -> None:
    (folder / "state.json").unlink()
    (folder / "state.json").mkdir()


def other_name(folder: Path) -> None:
    folder.rename(folder.with_name("round-abc"))


def other_round(folder: Path) -> None:
    folder.rename(folder.with_name("round-1000000"))


def no_sums(folder: Path) -> None:
    (folder / "SHA256SUMS").unlink()


@pytest.mark.slow
@pytest.mark.parametrize("damage", [as_file, folder_inside, other_name, other_round, no_sums])
def test_whatever_is_wrong_with_the_newest_checkpoint_the_one_before_is_taken(
    whole: Path, part: Path, damage: Callable[[Path], None]
) -> None:
    damage(part / "checkpoint/round-000003")
    (note,) = notes(part)
    assert note.startswith(f"skipped a checkpoint: {part / 'checkpoint/round-'}") and "\n" not in note
    resume(part)
    assert weights(part) == weights(whole) and table(part) == table(whole)
    assert notes(part) == ()
    names = sorted(path.name for path in (part / "checkpoint").iterdir())
    kept = [name for name in names if name.startswith("unused-round-")]
    assert len(kept) == 1  # nothing is deleted
    assert names == ["metrics.jsonl", "round-000003", "round-000004", *kept]


def test_a_checkpoint_that_was_set_aside_does_not_count_as_one_of_two(part: Path) -> None:
    (part / "checkpoint/round-000003/SHA256SUMS").unlink()
    with pytest.raises(KeyboardInterrupt):
        resume(part, "checkpoint_every=9", observers=[StopAfter(2)])
    assert [path.name for path in sorted((part / "checkpoint").glob("round-*"))] == ["round-000002"]
    read_checkpoint(part / "checkpoint/round-000002")
    state = json.loads((part / "status.json").read_text())
    assert (state["state"], state["rounds"]) == ("interrupted", 2)
