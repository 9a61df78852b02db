"""Where the papers' data and settings are, if they are on this machine; how tests of data sets load them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedstride.errors import FedstrideError
from fedstride.tasks import data
from fedstride.tasks.registry import TASKS

SHARED = Path(__file__).resolve().parents[2] / "shared"
REAL = SHARED / "data"
real = pytest.mark.skipif(not REAL.is_dir(), reason=f"the data sets are not at {REAL}")


def load(name: str, root: Path, **settings: Any) -> data.Data:
    return data.load(TASKS.config(name)(root=str(root), **settings))


def refused(name: str, root: Path, **settings: Any) -> str:
    """The error for files that are refused, which is one line."""
    data._load.cache_clear()
    with pytest.raises(FedstrideError) as caught:
        load(name, root, **settings)
    assert "\n" not in str(caught.value)
    return str(caught.value)
