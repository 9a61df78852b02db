"""What docs/operations.md says: units of systemd, warnings before certificates expire, versions of Flower."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from flwr.supercore.dependencies.runtime_version import RuntimeVersionDependency
from flwr.supercore.error import FlowerError
from flwr.supercore.interceptors import create_fleet_runtime_version_server_interceptor
from folders import Call
from starlette.requests import Request

from lab.deployment.certificates import make
from lab.deployment.expiry import WARN_DAYS, expiries
from node import node_config, settings
from server_app.config.conf import conf_dir
from superlink import settings as superlink_settings

DOCS = conf_dir().parent / "docs"
UNITS = sorted((DOCS / "systemd").glob("*.service"))
NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)


# ---------------------------------------------------------------- units of systemd


def command(unit: Path) -> list[str]:
    """The words of ExecStart."""
    text = unit.read_text().replace("\\\n", " ")
    (found,) = re.findall(r"^ExecStart=(.+)$", text, re.MULTILINE)
    return shlex.split(found)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_systemd_accepts_the_units(unit: Path, tmp_path: Path) -> None:
    """With a program that exists; everything else is as in the file."""
    copy = tmp_path / unit.name
    copy.write_text(re.sub(r"(ExecStart=)\S+", r"\1/bin/true", unit.read_text()))
    done = subprocess.run(["systemd-analyze", "verify", str(copy)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "program"),
    [("superlink", ["fedstride", "superlink"]), ("node", ["fedstride", "node"])],
    ids=lambda x: x[-1],
)
def test_the_units_start_programs_with_options_that_exist(name: str, program: list[str]) -> None:
    (unit,) = [unit for unit in UNITS if unit.stem == f"fedstride-{name}"]
    words = command(unit)
    path = Path(sys.executable).with_name(program[0])
    known = subprocess.run([path, *program[1:], "--help"], capture_output=True, text=True, check=True).stdout
    assert [Path(words[0]).name, *words[1 : len(program)]] == program
    given = [word for word in words if word.startswith("--")]
    assert len(given) >= 4 and set(given) <= set(re.findall(r"--[a-z0-9-]+", known))
    writable = re.findall(r"^ReadWritePaths=(\S+)$", unit.read_text(), re.MULTILINE)
    assert len(writable) == 1 and not any(f"{writable[0]}/" in word for word in words if word.startswith("/"))
    for folder in re.findall(
        r"(?:WorkingDirectory|FLWR_HOME|FEDSTRIDE_STATE|FEDSTRIDE_CACHE)=(\S+)", unit.read_text()
    ):
        assert f"{folder}/".startswith(f"{writable[0]}/")


def test_the_quotes_of_a_node_config_survive() -> None:
    (unit,) = [unit for unit in UNITS if unit.stem == "fedstride-node"]
    words = command(unit)[2:]
    given = words[words.index("--node-config") + 1]
    assert node_config.node_config(given) == {
        "data": "/srv/fl/data.toml",
        "policy": "/srv/fl/policy.toml",
        "name": "hospital-a",
    }


def test_the_page_of_commands_has_every_option_of_a_node(capsys: pytest.CaptureFixture[str]) -> None:
    """And no command on a page or in a unit gives it another option."""
    with pytest.raises(SystemExit):
        settings.read(["--help"])
    known = set(re.findall(r"--[a-z0-9-]+", capsys.readouterr().out)) - {"--help"}
    page = (DOCS / "commands.md").read_text().partition("### `fedstride node ...`")[2].partition("\n### ")[0]
    assert set(re.findall(r"^\| `(--[a-z0-9-]+)", page, re.MULTILINE)) == known
    pages = [path.read_text().replace("\\\n", " ") for path in (*sorted(DOCS.glob("*.md")), *UNITS)]
    commands = [line for text in pages for line in re.findall(r"^.*fedstride node +--.*$", text, re.MULTILINE)]
    assert len(commands) > 8
    for line in commands:
        assert set(re.findall(r"(?<= )--[a-z0-9-]+", line)) <= known, line


def test_the_page_of_commands_has_every_option_of_a_superlink(capsys: pytest.CaptureFixture[str]) -> None:
    """And no command on a page or in a unit gives it another option."""
    with pytest.raises(SystemExit):
        superlink_settings.read(["--help"])
    known = set(re.findall(r"--[a-z0-9-]+", capsys.readouterr().out)) - {"--help"}
    page = (DOCS / "commands.md").read_text().partition("### `fedstride superlink ...`")[2].partition("\n### ")[0]
    rows = re.findall(r"^\| (`--.*?) \|", page, re.MULTILINE)
    assert {option for row in rows for option in re.findall(r"--[a-z0-9-]+", row)} == known
    pages = [path.read_text().replace("\\\n", " ") for path in (*sorted(DOCS.glob("*.md")), *UNITS)]
    commands = [
        line for text in pages for line in re.findall(r"^.*fedstride superlink +--.*$", text, re.MULTILINE)
    ]
    assert len(commands) >= 2
    for line in commands:
        assert set(re.findall(r"(?<= )--[a-z0-9-]+", line)) <= known, line


# ---------------------------------------------------------------- certificates


@pytest.fixture
def certificates(tmp_path: Path) -> Path:
    folder = tmp_path / "certs"
    make(folder, names=["fl.example.org"], nodes=["hospital-a"], days=90, now=NOW)
    return folder


@pytest.mark.parametrize(("left", "soon"), [(WARN_DAYS + 1, False), (WARN_DAYS, True), (0, True), (-1, True)])
def test_days_until_expiry(certificates: Path, left: int, soon: bool) -> None:
    """Of the certificates in a folder; keys in it are none."""
    now = NOW + timedelta(days=90 - left, hours=-1)
    found = {each.path.name: each for each in expiries([certificates], now)}
    assert found.keys() == {"ca.crt", "server.crt"}
    assert (found["server.crt"].days, found["server.crt"].soon) == (left, soon)
    assert not found["ca.crt"].soon


def test_a_file_of_several_certificates_expires_with_the_first(certificates: Path, tmp_path: Path) -> None:
    chain = tmp_path / "chain.pem"
    chain.write_bytes((certificates / "ca.crt").read_bytes() + (certificates / "server.crt").read_bytes())
    (one, two) = expiries([chain, certificates / "server.crt", chain], NOW)
    assert one.days == two.days and one.until == two.until


def test_doctor_names_them(certificates: Path, tmp_path: Path, call: Call, home: Path) -> None:
    (tmp_path / "other.crt").write_text("nothing")
    (tmp_path / "empty").mkdir()
    make(tmp_path / "fresh", names=["fl.example.org"], days=90)
    make(tmp_path / "soon", names=["fl.example.org"], days=20)
    trusted = (
        f'[superlink.clinics]\naddress = "fl.example.org:8000"\nroot-certificates = "{tmp_path}/fresh/ca.crt"\n'
    )
    (home / "config.toml").write_text(trusted)
    given = [certificates, tmp_path / "fresh/server.crt", tmp_path / "soon/server.crt", tmp_path / "other.crt"]
    given += [tmp_path / "empty", tmp_path / "missing"]
    options = [word for path in given for word in ("--certificates", path)]
    code, out, _ = call("doctor", "--only-certificates", "--format", "json", *options)
    everything = json.loads(out)
    assert {each["topic"] for each in everything} == {"certificates", "keys"} and code == 1
    found = [each for each in everything if each["topic"] == "certificates"]
    states = {re.split(r":? ", each["text"])[0].removeprefix(f"{tmp_path}/"): each["state"] for each in found}
    assert states == {
        "certs/ca.crt": "ok", "certs/server.crt": "fail", "fresh/server.crt": "ok", "soon/server.crt": "warn",
        "fresh/ca.crt": "ok", "other.crt": "warn", "empty": "warn", "missing": "warn",
    }  # fmt: skip
    code, out, _ = call("doctor", "--only-certificates", "-q", "--certificates", tmp_path / "soon")
    assert code == 0 and "soon/server.crt expires on" in out and "ca.crt" not in out


# ---------------------------------------------------------------- versions of Flower


def asks(version: str) -> Request:
    headers = {
        "flwr-package-name": "flwr", "flwr-package-version": version, "flwr-component-name": "flwr CLI",
    }  # fmt: skip
    return Request({"type": "http", "headers": [(key.encode(), value.encode()) for key, value in headers.items()]})


def test_another_flower_is_refused_where_the_page_says_so() -> None:
    check = RuntimeVersionDependency(component_name="SuperLink", connection_name="a connection")
    check(asks("1.39.1"))
    with pytest.raises(FlowerError) as caught:
        check(asks("1.40.0"))
    said = re.search(r"`(runtime version mismatch: .+?)`", (DOCS / "operations.md").read_text())
    assert said is not None and said[1] in str(caught.value)
    assert not create_fleet_runtime_version_server_interceptor()._reject_incompatible  # of nodes, as the page says
