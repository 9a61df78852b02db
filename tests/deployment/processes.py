"""A deployment of real processes on loopback (SuperLinks, SuperNodes, commands), all of which end with it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from fedstride.flower.for_nodes.connecting import uses_http
from fedstride.flower.for_nodes.request_keys import openssh_to_pem
from fedstride.processes.forks import children
from lab.flower.flower_command import FlowerConnection, environment, free_port, write_connection
from lab.flower.superlink_choice import ChosenSuperLink
from lab.flower.superlink_requests import Control, Listed, control

MARK = "FEDSTRIDE_TEST_DEPLOYMENT"  # environment variable by which all processes of a deployment are found
START_SECONDS = 300.0  # long, since the machine may be busy
STOP_SECONDS = 15.0
JOINED = "SuperNode ID: "  # logged by a SuperNode when the SuperLink has accepted it
KEY_IN_USE = ("[code: 2004] Failed to activate SuperNode", "does not accept this node's key (code 2004)")
"""Of Flower's own SuperNode, and of ours; said of an unknown key, too."""

STOCK = ("flower-supernode",)
WARM = (sys.executable, "-m", "lab.cli.main", "node", *(["--allow-root"] if os.geteuid() == 0 else []))
"""The two programs for a SuperNode. Flower's own has a port in addition."""

SECRET = {"AWS_SECRET_OF_THE_SERVER": "not for apps"}
"""In the environment of a SuperLink."""

PLAIN = ("flower-superlink", "--disable-runtime-dependency-installation")
GUARDED = (sys.executable, "-m", "lab.cli.main", "superlink")
"""The two programs for a SuperLink."""

T = TypeVar("T")


def until(found: Callable[[], T | None], what: str, seconds: float = START_SECONDS, pause: float = 0.2) -> T:
    """Call `found` until it returns a value; fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while (answer := found()) is None:
        assert time.monotonic() < deadline, f"no {what} within {seconds:g} s"
        time.sleep(pause)
    return answer


@dataclass(frozen=True)
class Running:
    """A process with its own folder and FLWR_HOME, and the log of its output."""

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
        """Send a signal to the process and all its children, which share its process group."""
        os.killpg(self.process.pid, what)

    def kill(self) -> None:
        """Kill the process and its children without warning, as in a power failure."""
        self.signal_all(signal.SIGKILL)
        self.process.wait()  # the children watch its process id, which exists until then

    def joined(self) -> bool | None:
        """True when the SuperLink has accepted the SuperNode; False if the key is still in use; None before."""
        if self.ended() is None:
            return True if JOINED in self.log() else None
        assert any(said in self.log() for said in KEY_IN_USE), self.log()
        return False


def stop(*processes: Running) -> None:
    """Terminate the processes, and kill those that take too long (a SuperLink waits for open streams)."""
    for running in processes:
        running.process.terminate()
    for running in processes:
        try:
            running.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()


def own_data(folder: Path, path: Path, said: str, policy: str = "") -> str:
    """The node-config of a node with these data. `said`: what its data file says of them.

    The draws of the hold-out are those of a desk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "data.toml").write_text(f'path = "{path}"\nsplit_seed = 0\n{said}')
    (folder / "policy.toml").write_text(policy)
    return f'data="{folder / "data.toml"}" policy="{folder / "policy.toml"}"'


def superlink_addresses() -> tuple[str, str]:
    """Free addresses for submitting and for nodes; the same from Flower 1.40 on."""
    control = f"127.0.0.1:{free_port()}"
    return control, control if uses_http() else f"127.0.0.1:{free_port()}"


def listening(control: str, fleet: str) -> list[str]:
    """The options of a SuperLink for these addresses."""
    options = ["--host", "127.0.0.1", "--port", control.rpartition(":")[2]]
    return options if control == fleet else [*options, "--fleet-api-address", fleet]


@dataclass(frozen=True)
class Link:
    """A started SuperLink and its addresses."""

    running: Running
    control: str  # HOST:PORT for submitting
    fleet: str  # HOST:PORT for nodes
    certificates: Path
    program: Sequence[str] = GUARDED

    @property
    def target(self) -> ChosenSuperLink:
        """The SuperLink, for who submits."""
        return ChosenSuperLink("tls", self.control, root_certificates=self.certificates / "ca.crt")

    def run_folder(self, name: str) -> Path | None:
        """The folder of the run with this name; None if there is none."""
        return next(iter(self.running.folder.glob(f"runs/*/{name}")), None)


class Deployment:
    """Processes that share a root folder; a context manager that ends them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mark = uuid.uuid4().hex
        self._running: list[Running] = []
        self.desk = root / "desk/home"
        """The FLWR_HOME of the SuperLink's user, who submits, too."""

    def __enter__(self) -> Deployment:
        return self

    def __exit__(self, *details: Any) -> None:
        try:
            stop(*reversed(self._running))
        finally:
            kill_marked(self.mark)

    def env(self, home: Path) -> dict[str, str]:
        home.mkdir(parents=True, exist_ok=True)
        env = environment(home) | {MARK: self.mark, "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1"}
        env.pop("FEDSTRIDE_RUNS", None)  # runs are then saved below the folder of their SuperLink
        env["FEDSTRIDE_STATE"] = str(home / "state")  # and clients' states with their nodes
        return env

    def start(
        self, name: str, *command: str, env: dict[str, str] | None = None, user: int | None = None
    ) -> Running:
        """Start a command in its own folder, as this user; using a name again starts a new log."""
        folder = self.root / name
        env = self.env(folder / "home") | (env or {})
        cwd = folder if user is None else Path("/")  # which every user may enter
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command,
                cwd=cwd,
                env=env,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )
        running = Running(name, process, folder)
        self._running.append(running)
        return running

    def fedstride(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run the command `fedstride` until it ends."""
        command = [sys.executable, "-m", "lab.cli.main", *arguments]
        given = self.env(self.desk) | (env or {})
        return subprocess.run(command, env=given, capture_output=True, text=True, timeout=300, check=False)

    # ---------------------------------------------------------------- Flower's parts

    def superlink(self, name: str, certificates: Path, *options: str, program: Sequence[str] = GUARDED) -> Link:
        """Start a SuperLink with TLS and node authentication, without waiting for it."""
        return self._superlink(name, certificates, *superlink_addresses(), *options, program=program)

    def superlink_again(self, link: Link) -> Link:
        """Start the SuperLink again with the same addresses, in its folder, which contains its database."""
        again = link.control, link.fleet
        return self._superlink(link.running.name, link.certificates, *again, program=link.program)

    def _superlink(
        self, name: str, certificates: Path, control: str, fleet: str, *options: str, program: Sequence[str]
    ) -> Link:
        (self.root / name).mkdir(mode=0o700, exist_ok=True)
        running = self.start(
            name,
            *program,
            *("--ssl-ca-certfile", str(certificates / "ca.crt")),
            *("--ssl-certfile", str(certificates / "server.crt")),
            *("--ssl-keyfile", str(certificates / "server.key")),
            *listening(control, fleet),
            *("--database", "state.db", "--enable-supernode-auth"),
            *options,
            env={"FLWR_HOME": str(self.desk), **SECRET},
        )
        return Link(running, control, fleet, certificates, program)

    def supernode(
        self,
        name: str,
        fleet: str,
        *options: str,
        node_config: str = "",
        env: dict[str, str] | None = None,
        program: Sequence[str] = STOCK,
    ) -> Running:
        """Start a SuperNode with these options, without waiting until it has joined."""
        config = ["--node-config", node_config] if node_config else []
        if program != STOCK and "--pass-environment" not in options:
            options = (
                *options,
                "--pass-environment",
                MARK,
            )  # so that a process of a message that is left is found
        place = ["--superlink", fleet, *(["--port", str(free_port())] if program == STOCK else [])]
        return self.start(name, *program, *place, *options, *config, env=env)


class Desk:
    """The user who submits runs: an FLWR_HOME with a connection to one SuperLink."""

    def __init__(self, deployment: Deployment, link: Link) -> None:
        self.link = link
        self.env = deployment.env(deployment.desk)
        home = Path(self.env["FLWR_HOME"])
        write_connection(home, FlowerConnection("tls", link.control, link.certificates / "ca.crt"))

    @contextlib.contextmanager
    def asking(self) -> Iterator[Control]:
        """A connection to the SuperLink."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLWR_HOME", self.env["FLWR_HOME"])
            with control(self.link.target) as connection:
                yield connection

    def run(self, run_id: str) -> Listed:
        with self.asking() as connection:
            return connection.run(run_id)

    def stop(self, run_id: str) -> bool:
        with self.asking() as connection:
            return connection.stop(run_id)

    def stop_runs(self) -> None:
        """Stop what still runs. A run can finish between the list and the request to stop it."""
        with self.asking() as connection:
            for run in connection.runs():
                if not run.finished:
                    connection.stop(run.run_id)

    def register(self, public_key: Path) -> str:
        with self.asking() as connection:
            found = connection.register(openssh_to_pem(public_key.read_bytes()), public_key.stem)
        assert found is not None, f"{public_key} was registered before"
        return found

    def online(self) -> set[str]:
        with self.asking() as connection:
            return {str(node.id) for node in connection.nodes() if node.status == "online"}


def answers(link: Link) -> bool | None:
    """True when the SuperLink answers; None before. Fails if the process has ended."""
    assert link.running.ended() is None, link.running.log()
    # The certificate is not checked here: the nodes check it.
    trusting = ssl._create_unverified_context()
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"https://{link.control}/health", timeout=2, context=trusting).close()
        return True
    return None


class Site(NamedTuple):
    """What the tests of a module share: a SuperLink, its certificates, and a user who submits."""

    deployment: Deployment
    certificates: Path
    link: Link
    desk: Desk
    ids: dict[str, str]  # node ids of the registered keys, by key name

    def join(
        self,
        key: str,
        node_config: str,
        *options: str,
        env: dict[str, str] | None = None,
        program: Sequence[str] = STOCK,
    ) -> Running:
        """Start the node with this key, as in docs/deployment.md, without waiting until it has joined."""
        trust = ["--root-certificates", str(self.certificates / "ca.crt")]
        proof = ["--auth-supernode-private-key", str(self.certificates / key)]
        given = [*trust, *proof, *options]
        return self.deployment.supernode(
            key, self.link.fleet, *given, node_config=node_config, env=env, program=program
        )

    def joined(
        self,
        configs: Mapping[str, str],
        *options: str,
        env: dict[str, str] | None = None,
        program: Sequence[str] = WARM,
    ) -> list[Running]:
        """Start the nodes with these keys and configurations, and wait until they have joined.

        For a minute after a node was killed, the SuperLink believes that it is still online, and refuses a second
        one with its key: then it is started again.
        """

        def start(key: str) -> Running:
            return self.join(key, configs[key], *options, env=env, program=program)

        started = {key: start(key) for key in configs}
        for key in configs:
            while not until(started[key].joined, f"answer to the node {key}"):
                time.sleep(2.0)
                started[key] = start(key)
        return list(started.values())

    def pair(self) -> list[Running]:
        """Two nodes, each with half of the data; they have joined."""
        return self.joined({key: f"partition-id={k} num-partitions=2" for k, key in enumerate(("one", "two"))})

    def forget(self) -> None:
        """Delete what the nodes of earlier tests left on their disks: their logs, apps and clients' arrays."""
        for key in self.ids:
            shutil.rmtree(self.deployment.root / key, ignore_errors=True)


def folder_in(out: str) -> Path:
    """The run folder, from the output of `fedstride submit`."""
    found = re.search(r"folder, on the SuperLink's machine: (.+)", out)
    assert found, out
    return Path(found[1])


def of_messages(node: int) -> list[int]:
    """The processes that apps have at a node of ours: below the supervisors, which are below the template."""
    supervisors = [supervisor for template in children(node) for supervisor in children(template)]
    return [pid for supervisor in supervisors for pid in descendants(supervisor)]


def descendants(pid: int) -> list[int]:
    """The processes that a process has started, directly or not; zombies included."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*"):
        with contextlib.suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *descendants(child)]
    return found


def kill_marked(mark: str) -> None:
    """Kill every other process with the mark in its environment."""
    needle = f"{MARK}={mark}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            variables = (entry / "environ").read_bytes().split(b"\0")
            if int(entry.name) != os.getpid() and needle in variables:
                os.kill(int(entry.name), signal.SIGKILL)


def left_over(mark: str) -> list[str]:
    """The command lines of processes with the mark in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append((entry / "cmdline").read_text().replace("\0", " "))
    return found


def server_app(site: Site) -> int:
    """The id of the process in which the ServerApp runs."""
    mark = f"{MARK}={site.deployment.mark}".encode()
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (entry / "cmdline").read_bytes()
            if b"superlink.serverapp" in command and mark in (entry / "environ").read_bytes().split(b"\0"):
                return int(entry.name)
    raise AssertionError("no ServerApp runs")
