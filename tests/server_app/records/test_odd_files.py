"""Files of a run's folder that are something else: one error that whoever resumes a run can tell, or nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from server_app.records import completed_run, medians_file


@pytest.mark.parametrize("status", ["[" * 100_000, "[1]", "", '{"state": "completed"}', '{"rounds": 1e999}'])
def test_a_status_that_is_none_keeps_nothing(tmp_path: Path, status: str) -> None:
    (tmp_path / "config.yaml").write_text("rounds: 1")
    (tmp_path / "status.json").write_text(status)
    assert completed_run.kept(tmp_path, 1) == {}
    (tmp_path / "status.json").write_text('{"state": "completed", "rounds": 1}')
    assert completed_run.kept(tmp_path, 1).keys() == {"config.yaml", "status.json"}
    assert completed_run.kept(tmp_path, 2) == {}


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.write_bytes(b"x" * 2**23)])
def test_medians_that_are_no_file_are_an_error_at_once(tmp_path: Path, make: Callable[[Path], object]) -> None:
    assert medians_file.read(tmp_path) == []
    make(tmp_path / medians_file.NAME)
    with pytest.raises(OSError):
        medians_file.read(tmp_path)


def test_lines_of_medians(tmp_path: Path) -> None:
    medians_file.write(tmp_path, ["age: 54", "crp: 2"])
    assert medians_file.read(tmp_path) == ["age: 54", "crp: 2"]
