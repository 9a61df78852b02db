"""A resumed run writes nothing to where a link in its folder leads: who made it would choose the place."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from desk import play, resume

from client_app.state.saved_states import OnDisk
from fedstride.errors import ConfigError
from server_app.records.line_files import LineFile
from server_app.records.run_folder import lock


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("base"), "strategy=scaffold", "rounds=1").folder


def places(base: Path) -> list[str]:
    """Every file and folder of a run."""
    return sorted(str(path.relative_to(base)) for path in base.rglob("*"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_every_link_in_the_folder_is_refused_and_nothing_is_written(base: Path, tmp_path: Path) -> None:
    names = places(base)
    assert {"curve.png", "clients", "checkpoint", "metrics.jsonl", ".lock"} <= set(names)
    for number, name in enumerate(names):
        run, elsewhere = tmp_path / f"run-{number}", tmp_path / f"elsewhere-{number}"
        shutil.copytree(base, run)
        shutil.move(run / name, elsewhere)
        (run / name).symlink_to(elsewhere)
        before = contents(elsewhere) if elsewhere.is_dir() else {"": elsewhere.read_bytes()}
        with pytest.raises(ConfigError, match="is a link, and a run writes nothing to where a link leads"):
            resume(run, "rounds=2")
        assert (contents(elsewhere) if elsewhere.is_dir() else {"": elsewhere.read_bytes()}) == before, name
        assert (run / name).is_symlink()


@pytest.mark.slow
def test_links_that_lead_to_nothing_yet_are_refused(base: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(base, run)
    (run / "progress.json").symlink_to(tmp_path / "new")
    with pytest.raises(ConfigError, match=r"progress\.json is a link"):
        resume(run, "rounds=2")
    assert not (tmp_path / "new").exists()


def test_what_is_written_follows_no_link(tmp_path: Path) -> None:
    """Also one that is made after the folder was checked."""
    target = tmp_path / "target"
    target.write_text("kept")
    for name in (".lock", "lines"):
        (tmp_path / name).symlink_to(target)
    with pytest.raises(OSError):
        lock(tmp_path)
    with pytest.raises(OSError):
        LineFile(tmp_path / "lines").append(["more"])
    assert target.read_text() == "kept"


@pytest.mark.parametrize("place", ["run", "run/3"])
def test_a_clients_state_follows_no_link(tmp_path: Path, place: str) -> None:
    (tmp_path / "elsewhere/3").mkdir(parents=True)
    (tmp_path / "root/run").mkdir(parents=True)
    if place == "run":
        (tmp_path / "root/run").rmdir()
    (tmp_path / "root" / place).symlink_to(tmp_path / "elsewhere")
    saved = OnDisk(tmp_path / "root/run/3", 1, 0, 0).save({"method": {"x": 1.0}})
    assert not saved
    assert contents(tmp_path / "elsewhere") == {}
