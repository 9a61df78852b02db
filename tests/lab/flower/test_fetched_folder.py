"""What `fedstride fetch` takes from a SuperLink's stream: complete and verified, or nothing."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fedstride.errors import RunError
from lab.flower.fetched_folder import FetchedFile, unpacking
from superlink.run_folder_stream import PIECE, Files


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A folder with an empty file, one of several pieces, one below a folder, and what is never sent."""
    folder = tmp_path / "runs/7/source"
    (folder / "fedavg").mkdir(parents=True)
    (folder / "checkpoint").mkdir()
    (folder / "config.yaml").write_text("seed: 1\n")
    (folder / "empty").touch()
    (folder / "model.safetensors").write_bytes(os.urandom(2 * PIECE + 5))
    (folder / "fedavg/metrics.jsonl").write_text('{"round": 0}\n' * 9)
    (folder / "checkpoint/model").write_bytes(b"1")
    (folder / ".lock").touch()
    (folder / "link").symlink_to("/etc/passwd")
    (folder / "folder-link").symlink_to("/etc")
    os.mkfifo(folder / "pipe")
    return folder


def asked(runs: Path, folder: str, everything: bool = False) -> tuple[int, bytes]:
    """The status and the body that the SuperLink answers."""
    sent: list[dict[str, Any]] = []

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    query = f"folder={folder}&all={int(everything)}".encode()
    asyncio.run(Files(runs)({"query_string": query}, None, send))
    return sent[0]["status"], b"".join(event["body"] for event in sent[1:])


def stream(source: Path) -> bytes:
    status, body = asked(source.parents[1], str(source))
    assert status == 200
    return body


def take(sent: bytes, to: Path, size: int = 70_001) -> FetchedFile:
    with unpacking(to) as folder:
        parcel = FetchedFile(folder)
        for start in range(0, len(sent), size):
            parcel.take(sent[start : start + size])
        if not parcel.complete:
            raise RunError("what arrived is damaged: its end is missing")
    return parcel


def files(folder: Path) -> dict[str, bytes]:
    plain = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(folder)): path.read_bytes() for path in plain}


@pytest.mark.parametrize("size", [1 << 22, 70_001, 17])
def test_the_files_arrive_as_they_are(source: Path, tmp_path: Path, size: int) -> None:
    if size < 1000:
        (source / "model.safetensors").write_bytes(os.urandom(500))
    parcel = take(stream(source), tmp_path / "there/run", size)
    expected = files(source)
    for name in (".lock", "checkpoint/model"):
        del expected[name]
    assert files(tmp_path / "there/run") == expected
    assert parcel.sums.keys() == expected.keys()
    assert parcel.bytes == sum(map(len, expected.values()))


def test_everything_is_asked_for(source: Path, tmp_path: Path) -> None:
    _, body = asked(source.parents[1], str(source), everything=True)
    assert "checkpoint/model" in take(body, tmp_path / "run").sums


def cut(sent: bytes) -> bytes:
    """A byte is missing."""
    return sent[:5000] + sent[5001:]


def ended(sent: bytes) -> bytes:
    """The end is missing, as of a connection that broke."""
    return sent[: sent.rindex(b'{"end"')]


def bent(sent: bytes) -> bytes:
    at = sent.index(b"model.safetensors") + PIECE
    return sent[:at] + bytes([sent[at] ^ 1]) + sent[at + 1 :]


def twice(sent: bytes) -> bytes:
    return sent[: sent.index(b'{"file": "empty"')] + sent


def named(name: object, size: object = 0) -> Callable[[bytes], bytes]:
    return lambda sent: json.dumps({"file": name, "size": size}).encode() + b"\n" + sent


def more(sent: bytes) -> bytes:
    return sent + sent


def without_a_file(sent: bytes) -> bytes:
    """The sum of sums is another one."""
    first = sent.index(b"\n", sent.index(b'"sha256"')) + 1
    return sent[first:]


FAULTS = [
    *(cut, ended, bent, twice, more, without_a_file),
    *(named("../config.yaml"), named("/tmp/config.yaml"), named("a/../../b"), named(""), named(".")),
    *(named("x", -1), named("x", "y"), named(7), named("y" * 20_000)),
]


@pytest.mark.parametrize("fault", FAULTS)
def test_damage_leaves_nothing(source: Path, tmp_path: Path, fault: Callable[[bytes], bytes]) -> None:
    place = tmp_path / "place"
    with pytest.raises(RunError, match="what arrived is damaged"):
        take(fault(stream(source)), place / "run")
    assert list(place.iterdir()) == []
    assert not (tmp_path / "config.yaml").exists()
    assert take(stream(source), place / "run").complete


@pytest.mark.parametrize(
    "folder",
    ["", "/", "/etc", "{runs}", "{runs}/7", "{runs}/7/none", "{runs}/7/source/../../8", "{runs}/7/source/fedavg",
     "{runs}/7/link", "{runs}/linked/source", "7/source", "{runs}/7/source\0"],
)  # fmt: skip
def test_other_folders_are_not_handed_over(source: Path, folder: str) -> None:
    """Nor through links, not even to the folder of a run."""
    runs = source.parents[1]
    (runs / "7/link").symlink_to(source)
    (runs / "linked").symlink_to(runs / "7")
    status, body = asked(runs, folder.format(runs=runs))
    assert status == 404 and b"is not the folder of a run" in body


def test_what_a_killed_fetch_left_is_removed_by_the_next(source: Path, tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = tmp_path / f".run.fetch-{dead.pid}-abc"
    other = tmp_path / f".run.fetch-{os.getpid()}-abc"  # of a process that lives
    left.mkdir()
    other.mkdir()
    take(stream(source), tmp_path / "run")
    assert not left.exists()
    assert other.exists()


def announced(files: list[tuple[str, int]]) -> bytes:
    """A stream with these files, of zeros, that is right in itself."""
    sums, parts = hashlib.sha256(), []
    for name, size in files:
        digest = hashlib.sha256(bytes(size))
        parts += [json.dumps({"file": name, "size": size}).encode() + b"\n", bytes(size)]
        parts += [json.dumps({"sha256": digest.hexdigest()}).encode() + b"\n"]
        sums.update(digest.digest())
    return b"".join([*parts, json.dumps({"end": sums.hexdigest()}).encode() + b"\n"])


NESTED = "/".join(["a"] * 5_000)
TOO_MUCH = {
    "folders in folders": (announced([(f"{k}/{NESTED}/x", 0) for k in range(100)]), "damaged"),
    "many folders": (
        announced([(f"{k}/a/b/c/d/e/f/g/h/i/j/k/l/m/n/x", 0) for k in range(500)]),
        "more than 0.01 GB",
    ),
    "many empty files": (announced([(f"{k}", 0) for k in range(5_000)]), "more than 0.01 GB"),
    "many bytes": (announced([(f"{k}", 2**20) for k in range(12)]), "more than 0.01 GB"),
    "a file of an exabyte": (b'{"file": "a", "size": 1152921504606846976}\n', "more than 0.01 GB"),
    "a number of 5,000 digits": (b'{"file": "a", "size": ' + b"9" * 5_000 + b"}\n", "damaged"),
    "a size that is no number": (b'{"file": "a", "size": "7"}\n', "damaged"),
    "a size that is not finite": (b'{"file": "a", "size": NaN}\n', "damaged"),
    "a name that is no text": (b'{"file": ["a"], "size": []}\n', "damaged"),
    "a nested line": (b"[" * 16_000 + b"\n", "damaged"),
    "a hidden file": (announced([(".bashrc", 3)]), "damaged"),
    "a hidden folder": (announced([("a/.ssh/x", 3)]), "damaged"),
    "a name that a terminal acts on": (announced([("a\x1b[2J", 3)]), "damaged"),
    "a name that turns around": (announced([("a\u202eb", 3)]), "damaged"),
    "a file where a folder is": (announced([("a/b", 1), ("a", 1)]), "cannot be written"),
    "a folder where a file is": (announced([("a", 1), ("a/b", 1)]), "cannot be written"),
}


def took(sent: bytes, to: Path) -> int:
    """Take the stream with an allowance of 10 MB, looking at the folder all the time."""
    with unpacking(to) as folder:
        parcel = FetchedFile(folder, most_bytes=10**7)
        for start in range(0, len(sent), 70_001):
            parcel.take(sent[start : start + 70_001])
            written = list(folder.rglob("*"))
            assert sum(path.stat().st_size for path in written if path.is_file()) <= 10**7
            assert len(written) <= 10**7 // 4096
    return len(written)


@pytest.mark.slow
@pytest.mark.parametrize("what", TOO_MUCH)
def test_what_is_too_much_is_refused_before_it_is_written(what: str, tmp_path: Path) -> None:
    sent, why = TOO_MUCH[what]
    with pytest.raises(RunError, match=why) as caught:
        took(sent, tmp_path / "run")
    assert len(str(caught.value).splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_the_disk_has_no_room_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="there is no room"), unpacking(tmp_path / "run") as folder:
        FetchedFile(folder, most_bytes=2**62).take(b'{"file": "a", "size": 1152921504606846976}\n')
    assert list(tmp_path.iterdir()) == []
