"""Attacks on a SuperLink that runs: without a credential, with a node's key, by a ServerApp, by another user.

One SuperLink with TLS, node authentication and a database; a node takes part in one test only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.proto.fleet_pb2 import PushMessagesRequest, PushMessagesResponse
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree
from flwr.proto.node_pb2 import Node
from intruder import doors, intrude
from processes import GUARDED, WARM, Running, Site, descendants, left_over, until

from confinement import support
from fedstride.flower.for_nodes.connecting import connected, uses_http
from fedstride.flower.for_nodes.connection import LinkError, SuperLinkAddress
from fedstride.flower.for_nodes.fleet import FleetLink
from lab.flower import submission
from lab.flower.flower_command import free_port
from lab.flower.superlink_choice import named
from superlink import token

pytestmark = pytest.mark.slow

NOBODY = 65534


@pytest.fixture
def desk(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """This process as the user who submits."""
    monkeypatch.setenv("FLWR_HOME", site.desk.env["FLWR_HOME"])
    return site


@contextlib.contextmanager
def line(site: Site, seconds: float = 10.0) -> Iterator[ssl.SSLSocket]:
    """A connection with TLS."""
    context = ssl.create_default_context(cafile=str(site.certificates / "ca.crt"))
    host, _, port = site.link.control.rpartition(":")
    with (
        socket.create_connection((host, int(port)), seconds) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        yield secure


def asked(site: Site, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[int, str]:
    """The status of an answer, and its head and body."""
    given = "".join(f"{key.replace('_', '-')}: {value}\r\n" for key, value in headers.items())
    with line(site) as secure:
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n"
        secure.sendall(f"{head}{given}\r\n".encode() + body)
        found = b""
        while piece := secure.recv(65536):
            found += piece
    return int(found[9:12]), found.decode(errors="replace")


def memory(pid: int) -> int:
    """MiB in use."""
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) // 1024


# ---------------------------------------------------------------- without a credential


def test_19_without_a_credential_there_is_health_only(site: Site) -> None:
    status, text = asked(site, "GET", "/health")
    assert status == 200 and f"x-flower-version: {version('flwr')}" in text
    for path in ("control/list-runs", "control/start-run"):
        status, text = asked(site, "POST", f"/v1/{path}")
        assert status == 403 and "needs the submit token" in text
    assert asked(site, "POST", "/v1/control/list-runs", fedstride_token="x")[0] == 403
    assert asked(site, "POST", "/v1/runtime/pull-task-input")[0] == 401
    for method, path in (("POST", "/v1/runtime/acquire-task"), ("GET", "/docs"), ("GET", "/openapi.json")):
        assert asked(site, method, path)[0] == 404
    assert asked(site, "GET", "/health", x_forwarded_for="127.0.0.1")[0] == 403
    assert asked(site, "POST", "/v1/fleet/pull-messages")[0] == (401 if uses_http() else 404)


def test_18_half_requests_bodies_and_heads_neither_block_nor_fill_it(site: Site) -> None:
    """300 half requests at once, bodies of 400 MB, heads of 100 MB: health is answered, and memory stays."""
    pid = site.link.running.process.pid
    host, _, port = site.link.control.rpartition(":")
    used = []
    for _ in range(4):
        held = [socket.create_connection((host, int(port)), 5) for _ in range(300)]
        began = time.monotonic()
        assert asked(site, "GET", "/health")[0] == 200
        assert time.monotonic() - began < 2
        for each in held:
            each.close()
        used.append(memory(pid))
    assert used[-1] - used[1] < 32, used
    before = memory(pid)
    for path in ("/v1/fleet/push-object", "/v1/control/start-run"):
        with line(site) as secure, contextlib.suppress(OSError):
            secure.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 400000000\r\n\r\n".encode())
            for _ in range(100):
                secure.sendall(b"x" * 2**20)
    with line(site) as secure, contextlib.suppress(OSError):
        secure.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: x\r\n")
        for number in range(100):
            secure.sendall(b"x-%d: %s\r\n" % (number, b"y" * 2**20))
    assert asked(site, "GET", "/health")[0] == 200
    assert memory(pid) - before < 16


def test_flwr_does_not_work_without_the_token(site: Site) -> None:
    done = subprocess.run(["flwr", "list", "tls"], env=site.desk.env, capture_output=True, text=True, check=False)
    assert "needs the submit token" in " ".join((done.stdout + done.stderr).replace("│", " ").split())


# ---------------------------------------------------------------- with a node's key


@pytest.fixture
def node(site: Site) -> Iterator[FleetLink]:
    """A connection with the key of a registered node."""
    place = SuperLinkAddress(site.link.fleet, root_certificates=(site.certificates / "ca.crt").read_bytes())
    key = load_ssh_private_key((site.certificates / "three").read_bytes(), None)
    link = connected(place, key, wait=False, say=print)
    assert isinstance(link, FleetLink)
    yield link
    link.close()


def test_22_a_node_can_neither_instruct_nor_answer_for_another(site: Site, node: FleetLink) -> None:
    other = int(site.ids["one"])
    forged = {
        "an instruction for another node": {"src_node_id": 1, "dst_node_id": other, "reply_to_message_id": ""},
        "an answer in its name": {"src_node_id": other, "dst_node_id": 1, "reply_to_message_id": "a" * 64},
    }
    for what, values in forged.items():
        metadata = Metadata(run_id=1, message_id="b" * 64, message_type="train", ttl=600.0, **values)  # type: ignore[arg-type]
        request = PushMessagesRequest(
            node=Node(node_id=node.node_id),
            messages_list=[Message(metadata=metadata)],
            message_object_trees=[ObjectTree(object_id="b" * 64)],
        )
        with pytest.raises(LinkError, match=r"400|INVALID_ARGUMENT") as caught:
            node._call("PushMessages", request, PushMessagesResponse)
        assert f"node {node.node_id} " in str(caught.value), what
    assert site.link.running.log().count("refused: node ") >= 2


def test_30_a_large_object_of_a_node_is_refused(node: FleetLink) -> None:
    with pytest.raises(LinkError, match=r"413|larger than max"):
        node.put(1, "session", "a" * 64, b"x" * 13 * 2**20)


# ---------------------------------------------------------------- from the server's own machine (rows 20 and 21)


def test_20_the_token_is_in_no_argument_variable_or_log(desk: Site) -> None:
    secret = token.found(desk.link.control, insecure=False)
    assert secret is not None
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            assert secret.encode() not in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
    home = Path(desk.desk.env["FLWR_HOME"])
    for path in (*desk.deployment.root.rglob("log"), home / "config.toml"):
        assert secret not in path.read_text(errors="replace"), path
    for path in desk.link.running.folder.glob("state.db*"):
        assert path.stat().st_mode & 0o077 == 0 and secret.encode() not in path.read_bytes()


AS_NOBODY = """
import os, pathlib, sys
os.setgid({nobody}); os.setuid({nobody})
for path in sys.argv[1:]:
    try:
        pathlib.Path(path).read_bytes(); print("read", path)
    except OSError as error:
        print(type(error).__name__)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_20_another_user_reads_neither_token_database_nor_process(desk: Site) -> None:
    """Even if the folders above could be passed."""
    pid = desk.link.running.process.pid
    files = [
        token.place(desk.link.control),
        desk.link.running.folder / "state.db",
        Path(f"/proc/{pid}/environ"),
        Path(f"/proc/{pid}/mem"),
    ]
    above = [
        path for path in (*files[0].parents, *files[1].parents) if path.stat().st_uid == 0 and path != Path("/")
    ]
    modes = {path: path.stat().st_mode for path in above if not path.stat().st_mode & 0o001}
    for path, mode in modes.items():
        path.chmod(mode | 0o001)
    try:
        script = AS_NOBODY.format(nobody=NOBODY)
        done = subprocess.run(
            [sys.executable, "-c", script, *map(str, files)], capture_output=True, text=True, check=True
        )
    finally:
        for path, mode in modes.items():
            path.chmod(mode)
    assert done.stdout.split() == ["PermissionError"] * len(files), done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become another user")
def test_another_user_gets_nothing_at_the_sockets_of_superlink_serverapp_and_node(
    desk: Site, join: Callable[..., list[Running]]
) -> None:
    """While a node trains. The node listens nowhere; each port and path of the others is tried."""
    (node,) = join({"one": "partition-id=0 num-partitions=1"}, program=WARM)
    run = submission.submit(named("tls"), ["model=mlp", "clients=1", "rounds=100000"])
    try:
        until(lambda: "Receiving: train message" in node.log() or None, "message for the node", 120.0)
        at_node = doors([node.process.pid, *descendants(node.process.pid)])
        assert at_node == []
        server = desk.link.running.process.pid
        at_server = doors([server, *descendants(server)])
        assert {f"127.0.0.1:{door.port}" for door in at_server} == {desk.link.control, desk.link.fleet}
        assert all(door.is_local for door in at_server)
        assert intrude(at_server, desk.certificates / "ca.crt") == []
    finally:
        assert desk.desk.stop(run)


@pytest.mark.skipif(not support().possible, reason="this kernel cannot confine a process")
def test_21_a_serverapp_reaches_its_own_folder_only(desk: Site, tmp_path: Path) -> None:
    """What it tries is refused by the kernel, or not there; the run fails, and says why."""
    server = desk.link.running.folder
    other = server / "runs/1/other"
    other.mkdir(parents=True, mode=0o700)
    (other / "config.yaml").write_text("seed: 1\n")
    refused = free_port()
    with socket.create_server(("127.0.0.1", refused)):
        order = {
            "read": [str(path) for path in (
                server / "state.db", token.place(desk.link.control), desk.certificates / "server.key",
                other / "config.yaml", Path("/etc/shadow"), server / "log",
            )],
            "write": [str(path) for path in (server / "x", other / "config.yaml", server / "state.db")],
            "connect": [refused],
            "runs": str(server / "runs"),
        }  # fmt: skip
        text = (Path(__file__).parent / "hostile_server.py").read_text()
        (tmp_path / "hostile_server.py").write_text(text.replace("{}", json.dumps(order).replace("\\", "\\\\"), 1))
        overrides = [f"parts={tmp_path / 'hostile_server.py'}", "strategy=hostile_server", "model=mlp"]
        run = submission.submit(named("tls"), overrides)
        report = server / "runs" / run / "report.json"
        until(lambda: report.exists() or None, "report of the ServerApp", 120.0)
    found = json.loads(report.read_text())
    assert len(found["tried"]) == 16
    refused_with = {"PermissionError", "CalledProcessError"}
    assert {name: what for name, what in found["tried"].items() if what not in refused_with} == {}
    assert not {"AWS_SECRET_OF_THE_SERVER", "FEDSTRIDE_TOKEN_FILE"} & set(found["variables"])
    ended = submission.follow(named("tls"), run, lambda line: None)
    assert ended.state == "failed" and "the report is written" in ended.reason
    assert (other / "config.yaml").read_text() == "seed: 1\n"


def test_20_the_token_of_a_task_is_not_in_ps(desk: Site) -> None:
    """A ServerApp that waits for nodes: its task's token is in the database, and in no argument or variable."""
    run = submission.submit(named("tls"), ["model=mlp", "clients=2", "node_wait=600"])
    try:
        until(lambda: desk.desk.run(run).status == "running" or None, "start of the ServerApp", 120.0)
        with contextlib.closing(sqlite3.connect(desk.link.running.folder / "state.db")) as database:
            tokens = [row[0] for row in database.execute("SELECT token FROM task WHERE token IS NOT NULL")]
        assert tokens
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                seen = (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
                assert not [each for each in tokens if each.encode() in seen]
        assert [each for each in left_over(desk.deployment.mark) if "superlink.serverapp" in each]
    finally:
        assert desk.desk.stop(run)


def test_a_wrong_mode_is_refused_at_the_start(site: Site) -> None:
    """The database of the running SuperLink; nothing is changed."""
    folder = site.deployment.root / "wrong-mode"
    folder.mkdir(mode=0o700)
    (folder / "state.db").touch(0o644)
    (folder / "state.db").chmod(0o644)
    again = site.deployment.start(
        "wrong-mode", *GUARDED, "--insecure", "--port", str(free_port()), "--database", "state.db"
    )
    assert until(again.ended, "end of the SuperLink", 60.0) == 2
    (only,) = again.log().splitlines()
    assert only.startswith("error: the database") and "has mode 0644, so others can use it: chmod 600" in only
