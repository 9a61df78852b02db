"""A separate cache folder for the test session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fedstride.tasks import data


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fedstride-cache")


@pytest.fixture(autouse=True)
def _cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(shared_cache))


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder for one test; it does not exist yet."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FEDSTRIDE_CACHE", str(folder))
    return folder


@pytest.fixture
def forgotten_data(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No data set is loaded yet in this process, and no folder of data is given."""
    monkeypatch.delenv("FEDSTRIDE_DATA", raising=False)
    data._load.cache_clear()
    yield
    data._load.cache_clear()
