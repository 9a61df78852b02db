"""The cache: an entry is written once and completely, by the first process; no pickle is used."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedstride.errors import DataError
from fedstride.tasks import cache
from fedstride.tasks.cache import cache_dir, cached

ROOT = Path(__file__).parents[2]


def numbers() -> dict[str, np.ndarray]:
    return {"a": np.arange(5), "b": np.float32([[1.5]])}


def never() -> dict[str, np.ndarray]:
    pytest.fail("made a second time")


def test_an_entry_is_made_once_and_mapped_read_only(own_cache: Path) -> None:
    first = cached("kind", {"n": 5}, numbers)
    second = cached("kind", {"n": 5}, never)
    for found in (first, second):
        assert list(found) == ["a", "b"]
        assert isinstance(found["a"], np.memmap)
        assert not found["a"].flags.writeable
        assert found["a"].tolist() == [0, 1, 2, 3, 4]
        assert found["b"].dtype == np.float32


@pytest.mark.parametrize(
    ("kind", "key"), [("kind", {"n": 6}), ("other", {"n": 5}), ("kind", {"n": 5, "m": 0}), ("kind", {"n": "5"})]
)
def test_an_entry_depends_on_every_part_of_its_key(own_cache: Path, kind: str, key: dict[str, object]) -> None:
    cached("kind", {"n": 5}, numbers)
    found = cached(kind, key, lambda: {"a": np.array([9])})
    assert found["a"].tolist() == [9]


def test_the_format_is_part_of_the_key(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached("kind", {}, numbers)
    monkeypatch.setattr(cache, "FORMAT", cache.FORMAT + 1)
    assert cached("kind", {}, lambda: {"a": np.array([9])})["a"].tolist() == [9]


def test_the_order_in_a_key_is_irrelevant(own_cache: Path) -> None:
    cached("kind", {"a": 1, "b": {"c": 2, "d": 3}}, numbers)
    cached("kind", {"b": {"d": 3, "c": 2}, "a": 1}, never)


def test_an_entry_contains_its_key(own_cache: Path) -> None:
    cached("kind", {"alpha": 0.1}, numbers)
    (folder,) = own_cache.iterdir()
    assert folder.name.startswith("kind-")
    assert '"alpha": 0.1' in (folder / "key.json").read_text()


def test_a_failed_make_leaves_no_entry(own_cache: Path) -> None:
    def fail() -> dict[str, np.ndarray]:
        raise DataError("cannot be")

    with pytest.raises(DataError, match="cannot be"):
        cached("kind", {}, fail)
    assert not own_cache.exists() or not list(own_cache.iterdir())
    assert cached("kind", {}, numbers)["a"].tolist() == [0, 1, 2, 3, 4]


def test_an_array_that_cannot_be_stored_leaves_no_entry(own_cache: Path) -> None:
    with pytest.raises(ValueError, match="pickle"):
        cached("kind", {}, lambda: {"a": np.arange(3), "b": np.array([object()])})
    assert list(own_cache.iterdir()) == []


def test_incomplete_entries_of_a_killed_process_are_ignored(own_cache: Path) -> None:
    cached("kind", {}, numbers)
    (folder,) = own_cache.iterdir()
    incomplete = own_cache / f".{folder.name}-abcdef"
    folder.rename(incomplete)  # written in part, never renamed
    (incomplete / "a.npy").write_bytes(b"\x93NUMPY torn")
    assert cached("kind", {}, numbers)["a"].tolist() == [0, 1, 2, 3, 4]
    cached("kind", {}, never)


def test_an_entry_whose_files_were_deleted_is_made_again(own_cache: Path) -> None:
    """Programs that clean temporary folders delete files but not folders."""
    cached("kind", {}, lambda: {"a": np.arange(3)})
    for path in next(own_cache.iterdir()).glob("*.npy"):
        path.unlink()
    assert cached("kind", {}, lambda: {"a": np.arange(3)})["a"].tolist() == [0, 1, 2]


def test_the_second_of_two_writers_uses_the_entry_of_the_first(own_cache: Path) -> None:
    def slow() -> dict[str, np.ndarray]:
        cached("kind", {}, lambda: {"a": np.array([1])})  # another process is faster
        return {"a": np.array([2])}

    assert cached("kind", {}, slow)["a"].tolist() == [1]
    assert len(list(own_cache.iterdir())) == 1  # the temporary folder was removed


def test_two_processes_at_once(own_cache: Path) -> None:
    code = (
        "import sys, time, numpy as np\n"
        "from fedstride.tasks.cache import cached\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "def make():\n"
        "    time.sleep(0.1)\n"
        "    return {f'a{i}': np.full(20000, i) for i in range(10)}\n"
        "found = cached('kind', {'n': 1}, make)\n"
        "print(sum(int(found[f'a{i}'].sum()) for i in range(10)))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    for process in processes:
        assert process.stdout.readline().strip() == "ready"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    answers = [process.communicate(timeout=100)[0].strip() for process in processes]
    assert answers == [str(20000 * 45)] * 2
    assert [process.returncode for process in processes] == [0, 0]
    assert len(list(own_cache.iterdir())) == 1


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(DataError, match=r"is not writable .*set FEDSTRIDE_CACHE"):
        cached("kind", {}, numbers)


def test_a_disk_that_fills_up(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with pytest.raises(DataError, match=r"No space left on device.*free disk space"):
        cached("kind", {}, numbers)
    assert list(own_cache.iterdir()) == []


def test_the_location_of_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDSTRIDE_CACHE", "~/mine")
    assert cache_dir() == Path(os.path.expanduser("~/mine"))
    monkeypatch.setenv("FEDSTRIDE_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "fedstride"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "fedstride"
