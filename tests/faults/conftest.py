"""Clients save their states in a folder of these tests, not in the user's home folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="session", autouse=True)
def states(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the clients' states, also in the environment of child processes."""
    folder = tmp_path_factory.mktemp("states")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDSTRIDE_STATE", str(folder))
        yield folder
