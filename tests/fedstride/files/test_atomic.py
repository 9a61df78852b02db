"""Files that are written whole, and those that a program keeps for itself: links, modes, full and slow disks."""

from __future__ import annotations

import ast
import errno
import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from fedstride.files import atomic, private_files

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("fedstride", "strategies", "client_app", "server_app", "confinement", "node", "superlink", "lab")


def full(*rest: object) -> None:
    fails(errno.ENOSPC)


def fails(number: int) -> None:
    raise OSError(number, os.strerror(number))


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is forced to the disk: the names of files and folders."""
    found: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda file: found.append(Path(f"/proc/self/fd/{file}").resolve().name))
    return found


@pytest.mark.parametrize("write", [atomic.write, private_files.keep])
@pytest.mark.parametrize("place", ["file", ".file.PID"])
@pytest.mark.parametrize("kind", ["link", "pipe", "file"])
def test_whatever_has_the_name_is_replaced(
    tmp_path: Path, write: Callable[[Path, bytes], None], place: str, kind: str
) -> None:
    (tmp_path / "target").write_text("precious")
    there = tmp_path / place.replace("PID", str(os.getpid()))
    if kind == "link":
        there.symlink_to(tmp_path / "target")
    elif kind == "pipe":
        os.mkfifo(there)
    else:
        os.link(tmp_path / "target", there)
    write(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new" and not (tmp_path / "file").is_symlink()
    assert (tmp_path / "target").read_text() == "precious" and len(list(tmp_path.iterdir())) == 2


def test_a_file_that_cannot_be_written_is_unchanged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    atomic.write(tmp_path / "file", b"old")
    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError):
        atomic.write(tmp_path / "file", b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["file"] and (tmp_path / "file").read_bytes() == b"old"


def test_modes(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        atomic.write(tmp_path / "open", b"")
        private_files.keep(tmp_path / "folder/kept", b"")
        private_files.append(tmp_path / "more/lines", b"one\n")
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert modes == {"open": 0o644, "folder": 0o700, "kept": 0o600, "more": 0o700, "lines": 0o600}


def test_what_is_durable_is_on_the_disk_with_its_name(tmp_path: Path, synced: list[str]) -> None:
    atomic.write(tmp_path / "file", b"new")
    assert synced == []
    atomic.write(tmp_path / "file", b"new", durable=True)
    private_files.append(tmp_path / "lines", b"one\n")
    private_files.append(tmp_path / "lines", b"two\n")
    assert synced == [f".file.{os.getpid()}", tmp_path.name, "lines", tmp_path.name, "lines"]


@pytest.mark.parametrize("kind", ["file", "link"])
def test_a_file_that_is_created_must_not_exist(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "file"
    path.touch() if kind == "file" else path.symlink_to(tmp_path / "nothing")
    with pytest.raises(FileExistsError):
        atomic.create(path, b"new")
    assert not (tmp_path / "nothing").exists()


def test_what_is_created_is_complete_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for write in (atomic.create, atomic.put):
            with pytest.raises(OSError):
                write(tmp_path / "file", b"new", durable=True)
    assert not list(tmp_path.iterdir())
    atomic.create(tmp_path / "file", b"new", mode=0o600)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600 and (tmp_path / "file").stat().st_nlink == 1


@pytest.mark.parametrize("links", [True, False])
def test_of_many_who_create_a_file_one_does_and_all_read_it_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        monkeypatch.setattr(os, "link", lambda *names: fails(errno.EPERM))

    def one(number: int) -> bool:
        path = tmp_path / str(number // 8)
        try:
            atomic.create(path, b"x" * 100_000)
        except FileExistsError:
            return links and len(path.read_bytes()) != 100_000  # without links, it is seen while it is written
        made.append(path.name)
        return False

    made: list[str] = []
    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(one, range(320)))
    assert sorted(made) == sorted(path.name for path in tmp_path.iterdir()) and len(made) == 40
    assert all(len(path.read_bytes()) == 100_000 for path in tmp_path.iterdir())


@pytest.mark.parametrize(
    "use", [lambda path: private_files.kept(path, 99), lambda path: private_files.append(path, b"x\n")]
)
@pytest.mark.parametrize("fault", ["link", "pipe", "others may write", "of another user"])
def test_a_kept_file_that_others_could_have_made_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Path], object], fault: str
) -> None:
    path, target = tmp_path / "file", tmp_path / "target"
    target.write_bytes(b"kept\n")
    if fault == "link":
        path.symlink_to(target)
    elif fault == "pipe":
        os.mkfifo(path)
    else:
        path.write_bytes(b"kept\n")
        path.chmod(0o620 if fault == "others may write" else 0o600)
        if fault == "of another user":
            if os.geteuid() == 0:  # whose files nobody else may have made
                os.chown(path, 1234, -1)
            else:
                monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(OSError):
        use(path)
    assert target.read_bytes() == b"kept\n"


def test_a_line_that_the_disk_does_not_take_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private_files.append(tmp_path / "lines", b"one\n")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError):
            private_files.append(tmp_path / "lines", b"two\n")
    assert private_files.kept(tmp_path / "lines", 4) == b"one\n"
    with pytest.raises(PermissionError, match="more than 3 bytes"):
        private_files.kept(tmp_path / "lines", 3)


@pytest.mark.slow
def test_no_other_module_replaces_files_or_forces_names_to_the_disk() -> None:
    """`replace` of a path has one argument that is no text; of a string it has two."""
    found = set()
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                    called = ast.unparse(node.func)
                    replaces = node.func.attr == "replace" and len(node.args) == 1 and not node.keywords
                    if called == "os.replace" or replaces or called.startswith("tempfile.NamedTemp"):
                        found.add(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert {each.rpartition(":")[0] for each in found} == {"fedstride/files/atomic.py"}
