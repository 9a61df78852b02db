"""Where the papers' data and settings are, if they are on this machine; tests of them are skipped otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"
REAL = SHARED / "data"
real = pytest.mark.skipif(not REAL.is_dir(), reason=f"the data sets are not at {REAL}")
