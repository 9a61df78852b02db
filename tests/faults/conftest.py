"""Clients keep their states below a folder of these tests, not in the home of whoever runs them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder; processes that are started find it in their environment."""
    folder = tmp_path_factory.mktemp("states")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDSTRIDE_STATE", str(folder))
        yield folder
