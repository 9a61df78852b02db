"""Records of runs as they are kept in the repository: the same bytes for the same run, and read as runs are."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest
from desk import play
from folders import config, make
from scripts import ROOT, loaded

from lab.results.run_folders import find_runs
from lab.results.tables import compare_all


@pytest.fixture(scope="module")
def records() -> ModuleType:
    return loaded("studies/records.py")


@pytest.mark.slow
def test_what_is_unpacked_gives_the_same_table(records: ModuleType, tmp_path: Path) -> None:
    for seed in (1, 2):
        play(tmp_path / "runs", f"seed={seed}", f"name=run-{seed}")
    packed = records.pack(tmp_path / "runs", tmp_path / "kept")
    assert [path.name for path in packed] == ["run-1.tar.xz", "run-2.tar.xz"]
    assert records.pack(tmp_path / "runs", tmp_path / "kept") == []
    again = records.pack(tmp_path / "runs", tmp_path / "again")
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in packed]

    for folder in records.unpack(tmp_path / "kept", tmp_path / "back"):
        assert (folder / "metrics.jsonl").read_bytes() == (
            tmp_path / "runs" / folder.name / "metrics.jsonl"
        ).read_bytes()
    runs, remarks = find_runs([tmp_path / "back"])
    assert remarks == []
    [table] = compare_all(runs)
    [original] = compare_all(find_runs([tmp_path / "runs"])[0])
    assert table.cells == original.cells
    for path in (tmp_path / "back").rglob("*"):
        assert path.is_dir() or str(tmp_path).encode() not in path.read_bytes()
    with pytest.raises(FileExistsError):
        records.unpack(tmp_path / "kept", tmp_path / "back")


@pytest.mark.slow
def test_of_a_long_run_the_rows_of_some_rounds_are_kept(records: ModuleType, tmp_path: Path) -> None:
    whole = play(tmp_path / "runs", "rounds=5", "name=whole").folder
    initial = str(whole / "model.safetensors")
    play(tmp_path / "runs", "rounds=3", "name=more", f"initial={initial}")
    records.pack(tmp_path / "runs", tmp_path / "kept", 2)
    records.unpack(tmp_path / "kept", tmp_path / "back")
    (more, again), remarks = find_runs([tmp_path / "back"])
    assert remarks == []
    assert [row["round"] for row in again.rows] == [0, 2, 4, 5]
    assert [row["round"] for row in more.rows] == [0, 2, 3]
    assert more.config.initial == "model.safetensors" and more.config.initial_digest is not None
    assert str(tmp_path).encode() not in (more.folder / "config.yaml").read_bytes()


def test_many_runs_in_one_file(records: ModuleType, tmp_path: Path) -> None:
    """In folders of the same names, as sweeps over partitions make them."""
    for place, accuracy in (("a", 0.5), ("b", 0.6)):
        for seed in (1, 2):
            make(tmp_path / f"runs/{place}/run-{seed}", config(f"seed={seed}"), [accuracy + seed / 100])
    make(tmp_path / "runs/b/failed", config("seed=3"), [0.1], state="failed", reason="no client")
    kept = tmp_path / "kept/together.tar.xz"
    assert records.pack(tmp_path / "runs", kept) == [kept]
    assert records.pack(tmp_path / "runs", kept) == []
    [again] = records.pack(tmp_path / "runs", tmp_path / "again.tar.xz")
    assert again.read_bytes() == kept.read_bytes()
    folders = records.unpack(tmp_path / "kept", tmp_path / "back")
    assert folders == [tmp_path / "back/together" / name for name in ("a/run-1", "a/run-2", "b/run-1", "b/run-2")]
    runs, _ = find_runs([tmp_path / "back"])
    assert [run.rows[-1]["test/accuracy"] for run in runs] == [0.51, 0.52, 0.61, 0.62]


@pytest.mark.slow
def test_what_the_repository_keeps_can_be_read_and_is_small(records: ModuleType, tmp_path: Path) -> None:
    kept = ROOT / "docs/records"
    paths = sorted(kept.rglob("*.tar.xz"))
    if not paths:
        pytest.skip("no records are kept yet")
    assert sum(path.stat().st_size for path in paths) < 5_000_000
    folders = records.unpack(kept, tmp_path)
    runs, remarks = find_runs([tmp_path])
    assert len(runs) == len(folders) >= len(paths) and remarks == []
    assert all(run.completed for run in runs)
