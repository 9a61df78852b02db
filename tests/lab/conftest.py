"""Fixtures shared by the tests of several commands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from folders import Call

from lab.cli import main as cli
from lab.results.run_folders import Run, find_runs


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An FLWR_HOME with Flower's simulation and one SuperLink."""
    folder = tmp_path / "flower"
    folder.mkdir()
    monkeypatch.setenv("FLWR_HOME", str(folder))
    (folder / "config.toml").write_text(
        '[superlink]\ndefault = "local"\n[superlink.local]\naddress = ":local:"\n'
        '[superlink.clinic]\naddress = "fl.example.org:8000"\nroot-certificates = "/srv/ca.crt"\n'
    )
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A separate cache of prepared data for the module."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDSTRIDE_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def runs(root: Path) -> list[Run]:
    """The runs below the module's `root`."""
    return find_runs([root])[0]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """Run `fedstride ARGUMENTS`: (exit code, standard output, standard error)."""

    def fedstride(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["fedstride", *map(str, arguments)])
        capsys.readouterr()
        code = 0
        try:
            cli.main()
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return fedstride
