"""The compose files as text, and the script that prepares the demonstration; `test_compose.py` runs containers."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fedstride.flower.bundles import bundle
from lab.deployment.app_signing import read_signature
from lab.flower.bundle import app_folder
from node.apps.trusted_keys import trusted_keys

DOCKER = Path(__file__).parents[2] / "docker"
COMPOSE = DOCKER / "compose.yaml"


def services(name: str) -> dict[str, Any]:
    text = (DOCKER / name).read_text().replace("!override", "")  # compose's own tag
    found = yaml.safe_load(text)["services"]
    assert isinstance(found, dict)
    return found


def test_ports_are_defined_in_one_block() -> None:
    """To change a port, only `x-addresses` is edited."""
    block = re.search(r"^x-addresses:\n(?:  .+\n)+", COMPOSE.read_text(), re.MULTILINE)
    assert block is not None
    assert re.findall(r":(\d{4})\b", block[0])
    files = [path for path in DOCKER.rglob("*") if path.is_file() and path.parent.name in ("docker", "bin")]
    for path in files:
        text = path.read_text().replace(block[0], "")
        assert not re.findall(r"(?:[a-z0-9.]:|\bport )\d{4}\b", text, re.IGNORECASE), path


def test_all_services_use_these_ports() -> None:
    found = services("compose.yaml")
    fleet = found["superlink"]["command"]
    port = fleet[fleet.index("--fleet-api-address") + 1].rpartition(":")[2]
    api = fleet[fleet.index("--port") + 1]
    for node in ("node1", "node2", "node3"):
        command = found[node]["command"]
        assert command[command.index("--superlink") + 1] == found[node]["environment"]["SUPERLINK"]
        assert found[node]["environment"]["SUPERLINK"] == f"superlink:{port}"
        assert found[node]["healthcheck"]["test"] == ["CMD", "fedstride", "node-status"]
    for service in ("register", "submit"):
        assert found[service]["environment"]["ADDRESS"] == f"127.0.0.1:{api}"
        token = found[service]["environment"]["FEDSTRIDE_TOKEN_FILE"]
        assert token == f"{found['superlink']['environment']['FLWR_HOME']}/superlink-tokens/localhost:{api}"
    assert f":{api}/" in found["superlink"]["healthcheck"]["test"][2]
    assert services("scale.yaml")["node"]["command"][0] == "fedstride-node"


def test_nodes_run_signed_apps_only_and_the_submitter_has_the_signature() -> None:
    found = services("compose.yaml") | {"node": services("scale.yaml")["node"]}
    for name in ("node", "node1", "node2", "node3"):
        command = found[name]["command"]
        assert command[command.index("--trusted-entities") + 1] == "/trust/study.yaml", name
    for file in ("compose.yaml", "scale.yaml"):
        entrypoint = services(file)["submit"]["entrypoint"]
        assert entrypoint[entrypoint.index("--signature") + 1] == "/trust/study.sig", file
    with_signing_key = [name for name, service in found.items() if "certificates:/certificates" in str(service)]
    assert with_signing_key == ["certificates"]


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """The folder in which docker/bin/fedstride-prepare made its files, twice, as at a second start."""
    for name in ("bin", "runs", "certificates", *(f"handout/{role}" for role in ("server", "public", "node1"))):
        (tmp_path / name).mkdir(parents=True)
    text = (DOCKER / "bin/fedstride-prepare").read_text()
    for folder in ("/certificates", "/handout", "/runs"):
        text = re.sub(rf"(?<![\w.]){folder}\b", f"{tmp_path}{folder}", text)
    (tmp_path / "bin/prepare").write_text(text)
    (tmp_path / "bin/mountpoint").write_text('#!/bin/sh\n[ -d "$2" ]\n')
    (tmp_path / "bin/fedstride").write_text(f'#!/bin/sh\nexec {sys.executable} -m lab.cli.main "$@"\n')
    for program in ("mountpoint", "fedstride"):
        (tmp_path / "bin" / program).chmod(0o755)
    env = os.environ | {
        "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(DOCKER.parent),
        "NODES": "1",
        "FLWR_HOME": "/dev/null/read-only",
    }
    for _ in range(2):
        done = subprocess.run(
            ["sh", str(tmp_path / "bin/prepare")], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return tmp_path


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sh") is None, reason="there is no shell")
def test_the_demonstration_signs_the_app_that_it_submits(prepared: Path) -> None:
    node, public = prepared / "handout/node1", prepared / "handout/public"
    assert sorted(file.name for file in node.iterdir()) == ["ca.crt", "node.key", "study.yaml"]
    assert sorted(file.name for file in public.iterdir()) == ["ca.crt", "node1.pub", "study.sig"]
    trusted_keys(node / "study.yaml")
    with app_folder() as app:
        signature = read_signature(public / "study.sig", bundle(app))
    assert signature.key in yaml.safe_load((node / "study.yaml").read_text())
    assert stat.S_IMODE((prepared / "certificates/study").stat().st_mode) == 0o600
