"""The compose files as text: each port is defined only once. `test_compose.py` runs the containers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

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
        assert found[node]["healthcheck"]["test"][-1] == found[node]["environment"]["HEALTH"]
        assert command[command.index("--health-server-address") + 1] == found[node]["environment"]["HEALTH"]
    for service in ("register", "submit"):
        assert found[service]["environment"]["ADDRESS"] == f"127.0.0.1:{api}"
    assert f":{api}/" in found["superlink"]["healthcheck"]["test"][2]
    assert services("scale.yaml")["node"]["command"][0] == "fedstride-node"
