"""What `fedstride fetch` takes from a log: complete and verified, or nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fedstride.errors import RunError
from lab.flower.courier import MARK, PIECE, lines
from lab.flower.parcel import Parcel, unpacking


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with an empty file, one of several pieces, one below a folder, and what is never sent."""
    folder = tmp_path / "source"
    (folder / "fedavg").mkdir(parents=True)
    (folder / "checkpoint").mkdir()
    (folder / "config.yaml").write_text("seed: 1\n")
    (folder / "empty").touch()
    (folder / "model.safetensors").write_bytes(os.urandom(2 * PIECE + 5))
    (folder / "fedavg/metrics.jsonl").write_text('{"round": 0}\n' * 9)
    (folder / "checkpoint/model").write_bytes(b"1")
    (folder / ".lock").touch()
    (folder / "link").symlink_to("/etc/passwd")
    return folder


def sent(source: Path) -> list[str]:
    return [f"{MARK} {line}" for line in lines(source, {"checkpoint"})]


def take(log: list[str], to: Path) -> Parcel:
    with unpacking(to) as folder:
        parcel = Parcel(folder)
        for line in log:
            parcel.take(line)
    return parcel


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_files_arrive_as_they_are(source: Path, tmp_path: Path) -> None:
    log = sent(source)
    noise = ["INFO :      round 1", "", "sum 0", *[text for line in log for text in (line, "WARNING :  a line")]]
    parcel = take(noise, tmp_path / "there/run")
    assert parcel.complete
    expected = files(source)
    for name in (".lock", "checkpoint/model", "link"):
        del expected[name]
    assert files(tmp_path / "there/run") == expected
    assert parcel.sums.keys() == expected.keys()
    assert parcel.bytes == sum(map(len, expected.values()))


def cut(log: list[str]) -> list[str]:
    """A piece is missing."""
    return [line for number, line in enumerate(log) if " data " not in line or number % 2]


def bent(log: list[str]) -> list[str]:
    """A sum is another one."""
    return [line[:-1] + ("0" if line[-1] != "0" else "1") if " sum " in line else line for line in log]


def twice(log: list[str]) -> list[str]:
    return [log[0], *log]


def outside(log: list[str]) -> list[str]:
    return [f'{MARK} file "../config.yaml"', *log]


def absolute(log: list[str]) -> list[str]:
    return [f'{MARK} file "/tmp/config.yaml"', *log]


def without_a_file(log: list[str]) -> list[str]:
    """The last file is missing: the sum of sums is another one."""
    last = max(number for number, line in enumerate(log) if " file " in line)
    return [*log[:last], log[-1]]


def unknown(log: list[str]) -> list[str]:
    return [f"{MARK} run rm", *log]


@pytest.mark.parametrize("fault", [cut, bent, twice, outside, absolute, without_a_file, unknown])
def test_damage_leaves_nothing(source: Path, tmp_path: Path, fault: Callable[[list[str]], list[str]]) -> None:
    place = tmp_path / "place"
    with pytest.raises(RunError, match="what arrived is damaged"):
        take(fault(sent(source)), place / "run")
    assert list(place.iterdir()) == []
    assert not (tmp_path / "config.yaml").exists()
    assert take(sent(source), place / "run").complete


def test_what_a_killed_fetch_left_is_removed_by_the_next(source: Path, tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = tmp_path / f".run.fetch-{dead.pid}-abc"
    other = tmp_path / f".run.fetch-{os.getpid()}-abc"  # of a process that lives
    left.mkdir()
    other.mkdir()
    take(sent(source), tmp_path / "run")
    assert not left.exists()
    assert other.exists()
