"""The containers on a real Docker engine: the demonstration, permissions, more nodes, errors."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from desk import play, table, weights

from fedstride.error_kinds import ErrorKind, Fault
from fedstride.tasks import data
from fedstride.tasks.partitions import schemes
from lab.deployment.client_files import save_partition
from lab.results.run_folders import load
from server_app.config.compose import compose as fedstride_config
from server_app.config.defaults import HOLDOUT

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # the first test builds the image
]

ROOT = Path(__file__).parents[2]
ENGINE = ROOT.parent / "shared/tools/docker-engine"  # starts an engine on a machine without registries
ROLES = ("superlink", "node1", "node2", "node3")
UID = 1000
DEMO = (
    "clients=3",
    "partition=dirichlet",
    "rounds=5",
    "client.batch_size=40",
    "client.device=cpu",
    "test_set=false",
)
"""The run of docker/compose.yaml, for a run in process: the nodes have their own data, so the clients measure."""


def run(*command: str, seconds: float = 60, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


@pytest.fixture(scope="module")
def engine() -> Iterator[None]:
    """A Docker engine with compose; if it was started here, it is stopped afterwards."""
    if shutil.which("docker") is None and not ENGINE.is_file():
        pytest.skip("docker is not installed")
    ours = run("docker", "info").returncode != 0 if shutil.which("docker") else True
    if ours and not (ENGINE.is_file() and os.geteuid() == 0):
        pytest.skip("no docker engine is running")
    if ours:
        started = run(str(ENGINE), "start", seconds=300)
        if started.returncode != 0:
            pytest.skip(f"no docker engine could be started: {started.stdout.strip().splitlines()[-1:]}")
    if ENGINE.is_file() and run("docker", "image", "inspect", "python:3.11-slim").returncode != 0:
        base = run(str(ENGINE), "base", seconds=400)
        assert base.returncode == 0, base.stdout + base.stderr
    yield
    if ours:
        run(str(ENGINE), "stop")


class Composed:
    """A project of docker compose with its own folder of runs."""

    def __init__(self, runs: Path) -> None:
        runs.mkdir()
        os.chown(runs, UID, 0)
        self.runs = runs
        self.variables = {
            "COMPOSE_PROJECT_NAME": f"fedstride-test-{os.getpid()}",
            "FEDSTRIDE_IMAGE": "fedstride-test",
            "FEDSTRIDE_RUNS": str(runs),
            "FEDSTRIDE_UID": str(UID),
        }

    def __call__(
        self, *arguments: str, files: tuple[str, ...] = ("compose",), seconds: float = 300, **variables: str
    ) -> subprocess.CompletedProcess[str]:
        given = [part for file in files for part in ("-f", file if "/" in file else f"docker/{file}.yaml")]
        return run("docker", "compose", *given, *arguments, seconds=seconds, **(self.variables | variables))

    def folder(self, name: str) -> Path:
        """The folder of the run with this name."""
        (found,) = self.runs.glob(f"*/{name}")
        return found

    def container(self, service: str) -> str:
        return self("ps", "--all", "--quiet", service).stdout.strip()

    def inspect(self, service: str) -> dict[str, Any]:
        (found,) = json.loads(run("docker", "inspect", self.container(service)).stdout)
        assert isinstance(found, dict)
        return found

    def inside(self, service: str, *command: str) -> str:
        done = run("docker", "exec", self.container(service), *command)
        return done.stdout + done.stderr


@pytest.fixture(scope="module")
def compose(engine: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Composed]:
    composed = Composed(tmp_path_factory.mktemp("compose") / "runs")
    built = composed("build", "--quiet", seconds=1800)
    assert built.returncode == 0, built.stderr
    yield composed
    composed("down", "--volumes", files=("compose", "scale"))
    run("docker", "image", "rm", "fedstride-test")


@pytest.fixture(scope="module")
def demonstration(compose: Composed) -> subprocess.CompletedProcess[str]:
    """The demonstration of docker/compose.yaml; all containers stop when the run has ended."""
    return compose("up", "--exit-code-from", "submit", seconds=600)


@pytest.fixture(scope="module")
def running(compose: Composed, demonstration: Any) -> None:
    """The SuperLink and the nodes, started again with the volumes of the demonstration."""
    done = compose("up", "--detach", "--wait", *ROLES)
    assert done.returncode == 0, done.stderr


def test_the_demonstration_ends_with_accuracy_exit_code_and_folder(
    compose: Composed, demonstration: subprocess.CompletedProcess[str], tmp_path: Path
) -> None:
    out = demonstration.stdout
    assert demonstration.returncode == 0, out + demonstration.stderr + compose("logs", "certificates").stdout
    where = re.search(r"on the host: (.+)", out)
    assert where, out
    folder = Path(where[1].strip())
    assert folder.parent.parent == compose.runs
    local = play(tmp_path, *DEMO, small=False)
    assert f"final local accuracy {100 * local.rows[-1]['local/accuracy']:.2f} %" in out
    assert re.search(r"exit code 0\s", out)
    assert load(folder).status["state"] == "completed"
    # The data come from the nodes' own files and torch is another build, but the bits are those in process.
    assert weights(folder) == weights(local.folder)
    assert table(folder) == table(local.folder)


@pytest.mark.parametrize("service", ROLES)
def test_what_a_container_may_do(compose: Composed, running: None, service: str) -> None:
    found = compose.inspect(service)
    host, config = found["HostConfig"], found["Config"]
    assert config["User"] == f"{UID}:0"
    assert host["ReadonlyRootfs"] and host["CapDrop"] == ["ALL"] and not host["CapAdd"]
    assert "no-new-privileges:true" in host["SecurityOpt"]
    assert not host["Privileged"] and host["PidsLimit"] > 0
    assert host["Memory"] == host["MemorySwap"] > 0
    assert not host["PortBindings"]
    assert found["State"]["Health"]["Status"] == "healthy"
    assert re.search(r"CapBnd:\s+0+\n", compose.inside(service, "cat", "/proc/1/status"))
    assert "Read-only file system" in compose.inside(service, "touch", "/opt/fedstride/x")
    assert "pip" in compose.inside(service, "sh", "-c", "echo $FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION pip")


def test_a_node_sees_only_its_own_key_and_data(compose: Composed, running: None) -> None:
    seen = {node: compose.inside(node, "sha256sum", "/trust/node.key", "/data/data.toml") for node in ROLES[1:]}
    digests = [line.split()[0] for text in seen.values() for line in text.splitlines()]
    assert len(digests) == len(set(digests)) == 6
    assert compose.inside("node1", "ls", "/trust").split() == ["ca.crt", "node.key", "study.yaml"]
    assert compose.inside("superlink", "ls", "/trust").split() == ["ca.crt", "server.crt", "server.key"]
    assert "Read-only file system" in compose.inside("node1", "touch", "/data/x")


REACH = """
import socket
for host, port in (("superlink", 9092), ("superlink", 8000), ("node2", 9094), ("192.0.2.1", 443)):
    try:
        socket.create_connection((host, port), 3).close()
        print(port, "open")
    except OSError as error:
        print(port, "closed")
"""


def test_a_node_reaches_only_the_port_for_nodes(compose: Composed, running: None) -> None:
    lines = compose.inside("node1", "python", "-c", REACH).splitlines()
    assert lines == ["9092 open", "8000 closed", "9094 closed", "443 closed"]


def test_a_refused_run_has_exit_code_2(compose: Composed, running: None) -> None:
    done = compose("run", "--rm", "submit", "rounds=0")
    assert done.returncode == 2
    assert "rounds = 0 is not allowed" in done.stdout
    assert "exit code 2" in done.stdout


def test_a_node_refuses_an_app_that_was_not_signed(compose: Composed, running: None) -> None:
    """The submitter's signature is left out."""
    unsigned = ("--entrypoint", "fedstride-submit", "submit", "partition=own", "clients=3", "rounds=1")
    done = compose("run", "--rm", *unsigned)
    assert done.returncode == 1
    assert str(Fault(ErrorKind.UNTRUSTED)) in done.stdout


OWN = """
services:
  node1: {volumes: !override ["key1:/trust:ro", "FOLDER:/data:ro", "node1:/state"]}
"""


def test_another_run_with_the_same_keys_and_another_data_file(
    compose: Composed, running: None, tmp_path: Path
) -> None:
    """After `docker compose down`; the overlay file is the one in docs/containers.md."""
    key = compose.inside("node1", "sha256sum", "/trust/node.key")
    assert compose("down").returncode == 0
    config = fedstride_config(["clients=3", "seed=9"])
    source = data.load(config.task)
    parts = schemes.partition(config.partition, source.divisible, 3, 9)
    mine = save_partition(tmp_path / "data", source, parts)[0]
    overlay = tmp_path / "mine.yaml"
    mine.with_suffix(".toml").rename(mine.with_name("data.toml"))
    overlay.write_text(OWN.replace("FOLDER", str(mine.parent)))
    done = compose("run", "--rm", "submit", "rounds=1", "model=mlp", "name=again", files=("compose", str(overlay)))
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {row["client"]: row["num-examples"] for row in load(compose.folder("again")).clients.rows}
    assert rows[0] == pytest.approx((1 - HOLDOUT) * len(parts[0]), rel=0.1)
    assert compose.inside("node1", "sha256sum", "/trust/node.key") == key
    assert "already registered" in compose("logs", "register").stdout


def test_a_folder_of_runs_that_is_not_writable_is_reported_at_once(compose: Composed) -> None:
    compose("down")
    done = compose("up", "--exit-code-from", "submit", FEDSTRIDE_UID="4321")
    assert done.returncode != 0
    assert "user 4321 cannot write to the folder of runs" in compose("logs", "certificates").stdout


def test_more_nodes(compose: Composed) -> None:
    compose("down")
    files = ("compose", "scale")
    done = compose("run", "--rm", "submit", "rounds=1", "model=mlp", "name=four", files=files, NODES="4")
    assert done.returncode == 0, done.stdout + done.stderr
    assert load(compose.folder("four")).rows[-1]["clients"] == 4
    claimed = re.findall(r"this replica is (node\d)", compose("logs", "node", files=files, NODES="4").stdout)
    assert sorted(set(claimed)) == ["node1", "node2", "node3", "node4"]


def test_the_gpu_overlay_requests_devices(engine: None) -> None:
    done = run(
        "docker", "compose", "-f", "docker/compose.yaml", "-f", "docker/gpu.yaml", "config", "--format", "json",
        GPU2="1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    services = json.loads(done.stdout)["services"]
    requested = {
        name: services[name]["deploy"]["resources"]["reservations"]["devices"][0]["device_ids"] for name in ROLES
    }
    assert requested == {"superlink": ["0"], "node1": ["0"], "node2": ["1"], "node3": ["0"]}
