"""Nodes over several runs in one deployment: at once, after a kill or a stop, and what others see of a node."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from desk import play, table, weights
from processes import WARM, Running, Site, descendants, of_messages, until

from lab.flower import submission
from lab.flower.superlink_choice import named
from server_app.records.line_files import read_lines

pytestmark = pytest.mark.slow

REAL = ("model=mlp", "clients=2", "client.local_steps=3", "client.batch_size=20", "client.device=cpu")
SECRET = {"CANARY_OF_THE_NODE": "not for apps", "PASSED_TO_APPS": "for apps"}
LISTENS = "0A"  # the state of a socket in /proc/net/tcp


def config(k: int) -> str:
    return f"partition-id={k} num-partitions=2"


@pytest.fixture(scope="module")
def nodes(site: Site) -> dict[str, Running]:
    """The nodes by their keys; a test that starts one again puts it here. The deployment ends them."""
    keys = ("one", "two")
    options = ("--pass-environment", "PASSED_TO_APPS")
    started = site.joined({key: config(k) for k, key in enumerate(keys)}, *options, env=SECRET)
    return dict(zip(keys, started, strict=True))


@pytest.fixture
def desk(site: Site, monkeypatch: pytest.MonkeyPatch) -> Site:
    """This process as the user who submits."""
    monkeypatch.setenv("FLWR_HOME", site.desk.env["FLWR_HOME"])
    return site


def submit(name: str, *overrides: str) -> str:
    return submission.submit(named("tls"), [*REAL, *overrides, f"name={name}"])


def completed(site: Site, *runs: str) -> None:
    for run in runs:
        done = submission.follow(named("tls"), run, lambda line: None)
        assert done.completed, done


def folder_of(site: Site, name: str) -> Path:
    return until(lambda: site.link.run_folder(name), f"folder of the run {name}")


def same_as_one_process(folder: Path, tmp_path: Path, *overrides: str) -> None:
    local = play(tmp_path / folder.name, *REAL, *overrides, small=False).folder
    assert weights(folder) == weights(local)
    assert table(folder) == table(local)


@pytest.mark.usefixtures("nodes")
def test_two_runs_at_once(desk: Site, tmp_path: Path) -> None:
    """On the same two nodes, which answer a message of one run and then one of the other."""
    given = {"first": ("rounds=3", "strategy=scaffold"), "second": ("rounds=3", "strategy=fednnnn", "seed=2")}
    runs = [submit(name, *overrides) for name, overrides in given.items()]
    completed(desk, *runs)
    for name, overrides in given.items():
        same_as_one_process(folder_of(desk, name), tmp_path, *overrides)


@pytest.mark.usefixtures("nodes")
def test_a_run_after_them_is_resumed(desk: Site, tmp_path: Path) -> None:
    given = ("strategy=scaffold", "seed=3")
    completed(desk, submit("begun", *given, "rounds=1"))
    folder = folder_of(desk, "begun")
    completed(desk, submission.submit(named("tls"), [f"resume={folder}", "rounds=3"]))
    same_as_one_process(folder, tmp_path, *given, "rounds=3")


def listening(pid: int) -> list[str]:
    """The local addresses on which a process listens."""
    sockets = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        try:
            sockets.add(os.readlink(each))
        except OSError:  # closed meanwhile
            continue
    rows = [
        row.split() for name in ("tcp", "tcp6") for row in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    return [row[1] for row in rows if row[3] == LISTENS and f"socket:[{row[9]}]" in sockets]


def test_a_node_listens_on_no_port_and_keeps_its_secrets(desk: Site, nodes: dict[str, Running]) -> None:
    """Nor does a process of a message, which is looked at while it works."""
    run = submit("looked-at", "rounds=1000", "client.local_steps=200")
    node = nodes["one"].process.pid

    def look() -> dict[int, tuple[list[str], bytes]] | None:
        """What is seen of the node, its template, its supervisors and an app; None if there is no message."""
        family = [node, *descendants(node)]
        try:
            seen = {pid: (listening(pid), Path(f"/proc/{pid}/environ").read_bytes()) for pid in family}
        except (FileNotFoundError, ProcessLookupError):
            return None
        is_whole = all(environment for _, environment in seen.values())
        return seen if is_whole and set(of_messages(node)) & seen.keys() else None

    seen = until(look, "work of the node", pause=0.01)
    assert not any(addresses for addresses, _ in seen.values())
    assert listening(desk.link.running.process.pid)  # the SuperLink does
    assert b"CANARY_OF_THE_NODE=not for apps" in seen[node][1]
    for child in seen.keys() - {node}:
        assert b"CANARY" not in seen[child][1]
        assert b"PASSED_TO_APPS=for apps" in seen[child][1]
    desk.desk.stop(run)


def rounds_used(folder: Path, client: int) -> int:
    """The last round in which a client's reply was used; 0: in none."""
    rows = read_lines(folder / "clients.jsonl")
    return max((row["round"] for row in rows if (row["client"], row["status"]) == (client, "used")), default=0)


def takes_part_again(folder: Path, client: int) -> None:
    now = len(read_lines(folder / "metrics.jsonl"))
    until(lambda: rounds_used(folder, client) > now or None, f"reply of client {client}", 120.0)


def status(site: Site, node: Running) -> tuple[int, str]:
    done = site.deployment.fedstride("node-status", env={"FLWR_HOME": str(node.folder / "home")})
    return done.returncode, done.stdout + done.stderr


def test_nodes_that_are_stopped_or_killed_come_back_in_a_run(desk: Site, nodes: dict[str, Running]) -> None:
    """With their keys they keep their ids: one is started within a second of its end, one after a SIGKILL."""
    endless = ("rounds=100000", "min_clients=1", "timeout=20", "mute_rounds=100000", "client.local_steps=1")
    run = submit("goes-on", *endless)
    folder = folder_of(desk, "goes-on")
    until(lambda: min(rounds_used(folder, 0), rounds_used(folder, 1)) or None, "first round")
    assert status(desk, nodes["one"])[0] == 0

    nodes["two"].process.terminate()
    assert nodes["two"].process.wait(5) == 0
    code, said = status(desk, nodes["two"])
    assert code == 2 and "does not run (ended: a signal ended it" in said
    nodes["two"] = desk.join("two", config(1), program=WARM)
    assert until(nodes["two"].joined, "second node") is True  # it need not wait until the first is forgotten
    takes_part_again(folder, 1)

    nodes["one"].process.send_signal(signal.SIGKILL)
    nodes["one"].process.wait()
    code, said = status(desk, nodes["one"])
    assert code == 2 and "does not run" in said
    (nodes["one"],) = desk.joined({"one": config(0)})
    takes_part_again(folder, 0)
    assert desk.desk.online() == {desk.ids["one"], desk.ids["two"]}
    for key, node in nodes.items():
        assert f"SuperNode ID: {desk.ids[key]}" in node.log()
        assert status(desk, node)[0] == 0
    desk.desk.stop(run)
