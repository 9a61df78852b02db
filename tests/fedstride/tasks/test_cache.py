"""The cache: an entry is written once and completely, by the first process; no pickle is used."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import strangers

from fedstride.errors import ConfigError, DataError
from fedstride.tasks import cache
from fedstride.tasks.cache import cache_dir, cached

ROOT = Path(__file__).parents[3]


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


@pytest.mark.slow
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


def entry(own_cache: Path) -> Path:
    """The folder of the entry that `numbers` makes."""
    cached("kind", {}, numbers)
    (folder,) = own_cache.iterdir()
    return folder


def cut(folder: Path) -> None:
    os.truncate(folder / "a.npy", 140)


def emptied(folder: Path) -> None:
    (folder / "b.npy").write_bytes(b"")


def lengthened(folder: Path) -> None:
    with (folder / "a.npy").open("ab") as file:
        file.write(bytes(8))


def another_number(folder: Path) -> None:
    content = bytearray((folder / "a.npy").read_bytes())
    content[-8] ^= 1
    (folder / "a.npy").write_bytes(content)


def another_header(folder: Path) -> None:
    content = (folder / "b.npy").read_bytes()
    (folder / "b.npy").write_bytes(content.replace(b"<f4", b"<i4"))


def exchanged(folder: Path) -> None:
    (folder / "a.npy").rename(folder / "c.npy")
    (folder / "b.npy").rename(folder / "a.npy")
    (folder / "c.npy").rename(folder / "b.npy")


def one_deleted(folder: Path) -> None:
    (folder / "b.npy").unlink()


def a_folder_for_an_array(folder: Path) -> None:
    (folder / "a.npy").unlink()
    (folder / "a.npy").mkdir()


def no_list(folder: Path) -> None:
    """As versions wrote entries that did not have it."""
    (folder / cache.FILES).unlink()


def a_torn_list(folder: Path) -> None:
    os.truncate(folder / cache.FILES, 20)


def a_list_of_another_form(folder: Path) -> None:
    (folder / cache.FILES).write_text('[["a", 3]]')


def a_list_with_words(folder: Path) -> None:
    (folder / cache.FILES).write_text('{"a": ["long", "ago", 3], "b": null}')


def a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("not a folder")


def a_link_to_nothing(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.symlink_to("nowhere")


DAMAGES = (
    cut,
    emptied,
    lengthened,
    another_number,
    another_header,
    exchanged,
    one_deleted,
    a_folder_for_an_array,
    no_list,
    a_torn_list,
    a_list_of_another_form,
    a_list_with_words,
    a_file,
    a_link_to_nothing,
)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_an_entry_that_is_not_as_it_was_written_is_made_again(
    own_cache: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    folder = entry(own_cache)
    damage(folder)
    for make in (numbers, never):
        found = cached("kind", {}, make)
        assert found["a"].tolist() == [0, 1, 2, 3, 4] and found["b"].tolist() == [[1.5]]
        assert list(found) == ["a", "b"] and found["b"].dtype == np.float32
    assert [record.getMessage() for record in caplog.records] == [
        f"the cache entry {folder} was damaged or incomplete, and is made again"
    ]
    assert list(own_cache.iterdir()) == [folder]


def test_a_copy_whose_files_have_other_times_is_used(own_cache: Path, tmp_path: Path) -> None:
    """As a copy by `cp -r`, or in the image of a container."""
    folder = entry(own_cache)
    folder.rename(tmp_path / "elsewhere")
    shutil.copytree(tmp_path / "elsewhere", folder, copy_function=shutil.copyfile)
    os.utime(folder / "a.npy", (0, 0))
    assert cached("kind", {}, never)["a"].tolist() == [0, 1, 2, 3, 4]


def test_arrays_without_an_element(own_cache: Path) -> None:
    for make in (lambda: {"a": np.zeros((0, 3), np.uint8)}, never):
        assert cached("kind", {}, make)["a"].shape == (0, 3)


def test_an_entry_that_disappears_at_once_is_answered_from_what_was_made(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "_put", lambda temporary, folder: None)  # another process has removed it
    found = cached("kind", {}, numbers)
    assert found["a"].tolist() == [0, 1, 2, 3, 4] and not found["a"].flags.writeable


@pytest.mark.parametrize("place", ["file", "file/cache", "link", "/dev/null", "/proc/fedstride"])
def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "link").symlink_to("link")
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(tmp_path / place))
    with pytest.raises(DataError, match=r"is not writable .*set FEDSTRIDE_CACHE") as caught:
        cached("kind", {}, numbers)
    assert "None" not in str(caught.value)


MODES = {
    (0o311, 0o700): "5",  # it can be entered, and not listed
    (0o300, 0o500): "5",
    (0o111, 0o100): "5",
    (0o700, 0o600): "cannot be read (Permission denied)",  # an entry as another user's looks like
    (0o700, 0o000): "cannot be read (Permission denied)",
    (0o400, 0o700): "cannot be read (Permission denied)",
    (0o000, 0o700): "cannot be read (Permission denied)",
}
"""The modes of a cache and of its entry, and what is said."""


def test_what_permissions_allow(own_cache: Path) -> None:
    folder = entry(own_cache)
    code = (
        "import os, sys\n"
        "from fedstride.errors import DataError\n"
        "from fedstride.tasks.cache import cached\n"
        "cache, folder = sys.argv[1:3]\n"
        "for text in sys.argv[3:]:\n"
        "    outer, inner = (int(mode) for mode in text.split())\n"
        "    os.chmod(folder, inner); os.chmod(cache, outer)\n"
        "    try:\n"
        "        print(len(cached('kind', {}, dict)['a']))\n"
        "    except DataError as error:\n"
        "        print(error)\n"
        "    os.chmod(cache, 0o700); os.chmod(folder, 0o700)\n"
    )
    modes = [f"{outer} {inner}" for outer, inner in MODES]
    said = strangers.run("-c", code, str(own_cache), str(folder), *modes, cwd=ROOT, check=True).stdout.splitlines()
    assert len(said) == len(MODES)
    for line, expected in zip(said, MODES.values(), strict=True):
        assert expected in line
        assert expected == "5" or "set FEDSTRIDE_CACHE" in line


@pytest.mark.slow
@pytest.mark.parametrize("bytes_left", [0, 100, 130, 5000, 20100])
def test_a_disk_that_fills_up(own_cache: Path, bytes_left: int) -> None:
    """At the header of an array, in an array, and at the list of files."""
    code = (
        "import numpy as np, resource, sys\n"
        "from fedstride.errors import DataError\n"
        "from fedstride.tasks.cache import cached\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))\n"
        "try:\n"
        "    cached('kind', {}, lambda: {f'a{k}': np.zeros(20000, np.uint8) for k in range(400)})\n"
        "except DataError as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(bytes_left)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    (line,) = done.stdout.splitlines()
    assert "cannot be written" in line and "free disk space" in line and "None" not in line
    assert list(own_cache.iterdir()) == []


def test_the_location_of_the_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDSTRIDE_CACHE", "~/mine")
    assert cache_dir() == Path(os.path.expanduser("~/mine"))
    monkeypatch.setenv("FEDSTRIDE_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "fedstride"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_dir() == Path.home() / ".cache" / "fedstride"


@pytest.mark.parametrize("chosen", ["", "~/mine", "~nobody-of-this-name/cache"])
def test_the_location_of_the_cache_without_a_home(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    def nobody(user: object) -> NoReturn:
        raise KeyError(user)

    monkeypatch.setenv("FEDSTRIDE_CACHE", chosen)
    for name in ("HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    with pytest.raises(ConfigError, match=r"home folder of user .* is not known.*FEDSTRIDE_CACHE"):
        cache_dir()
