"""A deployment of real processes on loopback: SuperLinks, SuperNodes, the command; nothing outlives it."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from lab.flower.command import Connection, ask, end_marked, environment, free_port, write_connection

MARK = "FEDSTRIDE_TEST_DEPLOYMENT"  # environment variable by which all processes of a deployment are found
START_SECONDS = 120.0  # the machine may have other work
STOP_SECONDS = 15.0
IN = "SuperNode ID: "  # what a SuperNode logs once it was let in

T = TypeVar("T")


def until(found: Callable[[], T | None], what: str, seconds: float = START_SECONDS, pause: float = 0.2) -> T:
    """Ask until there is an answer; fails where there is none in time."""
    deadline = time.monotonic() + seconds
    while (answer := found()) is None:
        assert time.monotonic() < deadline, f"no {what} within {seconds:g} s"
        time.sleep(pause)
    return answer


@dataclass(frozen=True)
class Running:
    """A process with a folder and an FLWR_HOME of its own, and all it has printed."""

    name: str
    process: subprocess.Popen[bytes]
    folder: Path

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    def ended(self) -> int | None:
        return self.process.poll()

    def interrupt(self) -> None:
        os.kill(self.process.pid, signal.SIGINT)

    def signal_all(self, what: signal.Signals) -> None:
        """A signal to the process and all that it has started: they share its group."""
        os.killpg(self.process.pid, what)

    def kill(self) -> None:
        """What a machine does that loses power: nothing in it ends in order."""
        self.signal_all(signal.SIGKILL)
        self.process.wait()  # its children look for its id, which it keeps until then

    def joined(self) -> bool | None:
        """True once a SuperNode was let in; None before. Fails where it has ended."""
        assert self.ended() is None, self.log()
        return True if IN in self.log() else None


def stop(*all_of: Running) -> None:
    """End them as an operator would, and by force what takes too long (a SuperLink waits for streams)."""
    for running in all_of:
        running.process.terminate()
    for running in all_of:
        try:
            running.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()


@dataclass(frozen=True)
class Link:
    """A SuperLink that answers."""

    running: Running
    control: str  # HOST:PORT for submitting
    fleet: str  # HOST:PORT for nodes
    certificates: Path


class Deployment:
    """Processes below one folder; use it as a context manager."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mark = uuid.uuid4().hex
        self._running: list[Running] = []

    def __enter__(self) -> Deployment:
        return self

    def __exit__(self, *details: Any) -> None:
        try:
            stop(*reversed(self._running))
        finally:
            end_marked(MARK, self.mark)

    def env(self, home: Path) -> dict[str, str]:
        home.mkdir(parents=True, exist_ok=True)
        env = environment(home) | {MARK: self.mark, "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}
        env.pop("FEDSTRIDE_RUNS", None)  # runs land where their SuperLink stands
        env["FEDSTRIDE_STATE"] = str(home / "state")  # and what clients keep with each node
        return env

    def start(self, name: str, *command: str, env: dict[str, str] | None = None) -> Running:
        """Start a command in a folder of its own; a name that is used again starts a new log."""
        folder = self.root / name
        env = self.env(folder / "home") | (env or {})
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True
            )
        running = Running(name, process, folder)
        self._running.append(running)
        return running

    def fedstride(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run our command to its end."""
        command = [sys.executable, "-m", "lab.cli.main", *arguments]
        given = self.env(self.root / "desk/home") | (env or {})
        return subprocess.run(command, env=given, capture_output=True, text=True, timeout=300, check=False)

    # ---------------------------------------------------------------- Flower's parts

    def superlink(self, name: str, certificates: Path) -> Link:
        """Start a SuperLink with TLS and node authentication; it may not answer yet."""
        control, fleet = (f"127.0.0.1:{free_port()}" for _ in range(2))
        return self._superlink(name, certificates, control, fleet)

    def superlink_again(self, link: Link) -> Link:
        """Start it as it was, in its folder, where its database is."""
        return self._superlink(link.running.name, link.certificates, link.control, link.fleet)

    def _superlink(self, name: str, certificates: Path, control: str, fleet: str) -> Link:
        running = self.start(
            name,
            "flower-superlink",
            *("--ssl-ca-certfile", str(certificates / "ca.crt")),
            *("--ssl-certfile", str(certificates / "server.crt")),
            *("--ssl-keyfile", str(certificates / "server.key")),
            *("--host", "127.0.0.1", "--port", control.rpartition(":")[2], "--fleet-api-address", fleet),
            *("--database", "state.db", "--enable-supernode-auth", "--disable-runtime-dependency-installation"),
        )
        return Link(running, control, fleet, certificates)

    def supernode(self, name: str, fleet: str, *options: str, node_config: str = "") -> Running:
        """Start a SuperNode with these options; it may not have joined yet."""
        config = ["--node-config", node_config] if node_config else []
        return self.start(
            name, "flower-supernode", "--superlink", fleet, "--port", str(free_port()), *options, *config
        )


class Desk:
    """Who submits: an FLWR_HOME with a connection to one SuperLink."""

    def __init__(self, deployment: Deployment, link: Link) -> None:
        self.link = link
        self.env = deployment.env(deployment.root / "desk/home")
        home = Path(self.env["FLWR_HOME"])
        write_connection(home, Connection("tls", link.control, link.certificates / "ca.crt"))

    def flwr(self, *arguments: str) -> dict[str, Any]:
        return ask(["flwr", *arguments], self.env)

    def register(self, public_key: Path) -> str:
        return str(
            self.flwr("supernode", "register", str(public_key), "tls", "--name", public_key.stem)["node-id"]
        )

    def online(self) -> set[str]:
        nodes = self.flwr("supernode", "list", "tls")["nodes"]
        return {str(node["node-id"]) for node in nodes if node["status"] == "online"}


def answers(link: Link) -> bool | None:
    """True once the SuperLink takes requests; None before. Fails where it has ended."""
    assert link.running.ended() is None, link.running.log()
    # Whether its certificate is good is for the nodes to find out.
    trusting = ssl._create_unverified_context()
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"https://{link.control}/health", timeout=2, context=trusting).close()
        return True
    return None


class Site(NamedTuple):
    """A SuperLink with certificates, and a desk; what the tests of a module share."""

    deployment: Deployment
    certificates: Path
    link: Link
    desk: Desk
    ids: dict[str, str]  # node id by key name, of the registered ones

    def join(self, key: str, node_config: str) -> Running:
        """Start the node of this key as the guide says."""
        trust = ["--root-certificates", str(self.certificates / "ca.crt")]
        proof = ["--auth-supernode-private-key", str(self.certificates / key)]
        return self.deployment.supernode(key, self.link.fleet, *trust, *proof, node_config=node_config)


def folder_in(out: str) -> Path:
    """The run's folder, as `fedstride submit` tells it."""
    found = re.search(r"folder, on the SuperLink's machine: (.+)", out)
    assert found, out
    return Path(found[1])


def left_over(mark: str) -> list[str]:
    """Command lines of processes that carry the mark."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found
