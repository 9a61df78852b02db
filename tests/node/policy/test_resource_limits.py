"""What processes of a message use, and whether it can be seen here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node.policy import resource_limits
from node.policy.resource_limits import Limits, exceeded


def test_whether_processes_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where /proc hides those of which no core may be written, and on kernels that do not list children."""
    assert resource_limits.sees_processes()
    monkeypatch.setattr(resource_limits, "children", lambda pid: [])
    assert not resource_limits.sees_processes()


def test_files_are_counted_whatever_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "shut").mkdir()
    (folder / "shut/file").write_bytes(bytes(100_000))
    os.mkfifo(folder / "pipe")
    (folder / "link").symlink_to("/usr")
    (folder / "shut").chmod(0)
    assert exceeded(Limits(files=4, disk=10**6), [folder, tmp_path / "nowhere"], None) == ""
    assert "hold more files" in exceeded(Limits(files=3), [folder], None)
    assert "hold more than" in exceeded(Limits(disk=50_000), [folder], None)


def test_what_must_stay_free(tmp_path: Path) -> None:
    assert exceeded(Limits(free=1), [tmp_path], None) == ""
    assert "less is free on the disk" in exceeded(Limits(free=2**60), [tmp_path], None)


def test_folders_that_are_nested_too_deeply(tmp_path: Path) -> None:
    (tmp_path / "/".join("a" * 70)).mkdir(parents=True)
    assert "cannot be counted" in exceeded(Limits(files=10**6), [tmp_path], None)
