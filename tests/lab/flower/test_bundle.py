"""The folder that Flower bundles: the files of the resulting bundle."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk

from lab.flower.bundle import app_folder

EXAMPLE = Path(__file__).parents[3] / "examples/own_strategy.py"


@pytest.mark.parametrize(("parts", "found"), [(None, []), (str(EXAMPLE), ["own_parts/own_strategy.py"])])
def test_user_defined_parts_are_in_the_bundle(parts: str | None, found: list[str]) -> None:
    """Flower leaves out folders with certain names, such as `parts`, without a message."""
    with app_folder(parts) as folder:
        made = build_fab_from_disk(folder)
    names = zipfile.ZipFile(io.BytesIO(made if isinstance(made, bytes) else made[0])).namelist()
    assert [name for name in names if "own_" in name] == found
    assert {"conf/config.yaml", "server_app/app.py", "client_app/app.py", "strategies/parts.py"} <= set(names)
