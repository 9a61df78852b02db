"""What tests of more than one command need."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "flower"
    folder.mkdir()
    monkeypatch.setenv("FLWR_HOME", str(folder))
    (folder / "config.toml").write_text(
        '[superlink]\ndefault = "local"\n[superlink.local]\naddress = ":local:"\n'
        '[superlink.clinic]\naddress = "fl.example.org:8000"\nroot-certificates = "/srv/ca.crt"\n'
    )
    return folder
