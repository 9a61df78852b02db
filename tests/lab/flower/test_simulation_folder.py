"""The folder of a simulation: short enough for Ray's sockets, and of this user alone."""

from __future__ import annotations

import os
import re
import socket
import stat
import tempfile
from pathlib import Path

import pytest

from fedstride.errors import ConfigError
from fedstride.processes import exits
from lab.flower import simulation


@pytest.mark.parametrize(
    "name", ["slurm.4711/user", "x" * 120, "\N{LATIN SMALL LETTER U WITH DIAERESIS}" * 40, "t"]
)
def test_a_long_folder_for_temporary_files_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    long = tmp_path / "a-folder-that-is-long-enough" / name
    long.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    home = simulation._new_home()
    try:
        assert not home.is_relative_to(long)
        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        sockets = home / "session_2026-01-31_12-34-56_123456_1234567/sockets"
        sockets.mkdir(parents=True)
        with socket.socket(socket.AF_UNIX) as probe:
            probe.bind(str(sockets / "plasma_store"))
        (sockets / "plasma_store").unlink()
        sockets.rmdir()
        sockets.parent.rmdir()
    finally:
        home.rmdir()


def test_a_short_folder_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="f") as short:
        monkeypatch.setattr(tempfile, "tempdir", short)
        home = simulation._new_home()
        assert home.parent == Path(short)


@pytest.mark.parametrize("place", ["/proc", "/dev/null", "/nowhere"])
def test_without_a_short_folder_there_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 10)))
    monkeypatch.setattr(simulation, "SHORT", (place,))
    with pytest.raises(ConfigError, match=f"Ray makes sockets .*{re.escape(place)} cannot be written: set TMPDIR"):
        simulation._new_home()


def test_without_any_folder_for_temporary_files_a_command_says_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [os.devnull, str(tmp_path / "none")])
    with pytest.raises(SystemExit) as end:
        exits.run(simulation._new_home)
    assert end.value.code == 2
    assert capsys.readouterr().err == (
        "error: no folder for temporary files can be written: set TMPDIR to one that this user may write\n"
    )
