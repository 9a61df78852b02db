"""The removal of a folder in which an app has written, whatever it has left there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node.removal import remove, remove_named


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    folder = tmp_path / "above/scratch"
    folder.mkdir(parents=True)
    return folder


def test_files_folders_links_and_pipes_are_removed_and_what_links_name_is_not(
    tmp_path: Path, scratch: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (scratch / "a/b").mkdir(parents=True)
    (scratch / "a/b/file").write_text("x")
    (scratch / "to-a-file").symlink_to(outside / "kept")
    (scratch / "a/to-a-folder").symlink_to(outside)
    os.mkfifo(scratch / "a/pipe")
    os.link(outside / "kept", scratch / "hard")
    assert remove(scratch)
    assert not scratch.exists() and (outside / "kept").read_text() == "kept"


@pytest.mark.slow
def test_two_thousand_folders_in_each_other(scratch: Path) -> None:
    here = os.open(scratch, os.O_RDONLY)
    for _ in range(2000):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    assert remove(scratch) and not scratch.exists()


def test_folders_that_nobody_may_enter(scratch: Path) -> None:
    (scratch / "shut/inner").mkdir(parents=True)
    (scratch / "shut/inner/file").write_text("x")
    (scratch / "shut/inner").chmod(0)
    (scratch / "shut").chmod(0)
    assert remove(scratch) and not scratch.exists()


def test_a_link_in_place_of_the_folder(tmp_path: Path, scratch: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept/file").write_text("x")
    link = scratch / "link"
    link.symlink_to(tmp_path / "kept")
    assert not remove(link)
    assert (tmp_path / "kept/file").exists()


def test_a_removal_that_takes_too_long_ends(scratch: Path) -> None:
    (scratch / "file").write_text("x")
    assert not remove(scratch, seconds=-1.0)
    assert remove(scratch)
    assert remove(scratch.parent / "never-there") is False or not (scratch.parent / "never-there").exists()


def test_what_is_named(tmp_path: Path) -> None:
    for name in ("one", "two", "kept"):
        (tmp_path / name / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "file").write_text("x")
    remove_named(tmp_path, ["one", "two", "link", "file", "absent"])
    assert os.listdir(tmp_path) == ["kept"] and (tmp_path / "kept/inner").is_dir()
    remove_named(tmp_path / "nowhere", ["a"])
