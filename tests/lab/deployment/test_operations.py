"""Operating files: the systemd units, and warnings before certificates expire."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from folders import Call

from lab.deployment.certificates import make
from lab.deployment.expiry import WARN_DAYS, expiries

UNITS = sorted((Path(__file__).parents[2] / "docs/systemd").glob("*.service"))
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_the_units(unit: Path, tmp_path: Path) -> None:
    """With programs and a manual that exist; everything else is as in the file."""
    text = re.sub(r"(ExecStart=)\S+", r"\1/bin/true", unit.read_text())
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"Documentation=.*\n", "", text))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_units_start_programs_with_options_that_exist() -> None:
    assert [unit.stem for unit in UNITS] == ["fedstride-node", "fedstride-superlink"]
    page = (Path(__file__).parents[2] / "docs/deployment.md").read_text()
    for unit in UNITS:
        command = unit.read_text().partition("ExecStart=")[2].partition("\n\n")[0]
        options = [word for word in command.split() if word.startswith("--")]
        assert len(options) >= 4
        assert all(option in page for option in options)


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    folder = tmp_path / "certs"
    make(folder, names=["fl.example.org"], days=90, now=NOW)
    return folder


@pytest.mark.parametrize(("left", "soon"), [(WARN_DAYS + 1, False), (WARN_DAYS, True), (-1, True)])
def test_days_until_expiry(certificates: Path, left: int, soon: bool) -> None:
    now = NOW + timedelta(days=90 - left, hours=-1)
    found = {each.path.name: each for each in expiries([certificates], now)}
    assert found.keys() == {"ca.crt", "server.crt"}
    assert (found["server.crt"].days, found["server.crt"].soon) == (left, soon)
    assert not found["ca.crt"].soon


def test_doctor_names_them(certificates: Path, tmp_path: Path, call: Call, home: Path) -> None:
    (home / "config.toml").unlink()
    (tmp_path / "other.crt").write_text("nothing")
    code, out, _ = call(
        "doctor", "--format", "json", "--certificates", certificates, "--certificates", tmp_path / "other.crt"
    )
    found = [each for each in json.loads(out) if each["topic"] == "certificates"]
    states = {Path(each["text"].partition(" ")[0].rstrip(":")).name: each["state"] for each in found}
    assert states == {"ca.crt": "ok", "server.crt": "fail", "other.crt": "warn"}
    assert code == 1
