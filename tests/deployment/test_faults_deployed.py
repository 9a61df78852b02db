"""Faults with real processes: nodes that are killed, hang or join late, and a SuperLink that is killed."""

from __future__ import annotations

import re
import signal
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from desk import play, table, weights
from processes import WARM, Running, Site, answers, folder_in, of_messages, stop, until

from fedstride.flower.for_nodes.connecting import uses_http
from node.messages.message_parts import NO_ANSWER
from server_app.records.line_files import read_lines
from server_app.reports.client_rows import JOINED, LEFT

pytestmark = pytest.mark.slow

SMALL = ("model=mlp", "client.local_steps=3", "client.batch_size=20", "client.device=cpu")
TIMEOUT = 60  # seconds per round; a round without faults takes about ten
SLOW = '''
import time
from dataclasses import dataclass
from fedstride import Method, Plan, part

@part(client="slow")
@dataclass
class Slow(Method):
    """Its messages take long enough for something to happen in the middle of one."""

    def begin(self, job, received, state):
        time.sleep(8)
        return Plan()
'''


@pytest.fixture(scope="module")
def nodes(site: Site) -> Iterator[dict[str, Running]]:
    """Two of three nodes; a test that starts a node adds it here."""
    keys = ("one", "two")
    running = dict(zip(keys, site.joined({key: part(k) for k, key in enumerate(keys)}), strict=True))
    yield running
    stop(*running.values())


def part(k: int) -> str:
    return f"partition-id={k} num-partitions=3"


class Followed:
    """A submitted run, and its records so far."""

    def __init__(self, site: Site, name: str, *overrides: str) -> None:
        self._site, self._name = site, name
        home = {"FLWR_HOME": site.desk.env["FLWR_HOME"]}
        command = ["python", "-m", "lab.cli.main", "submit", "tls", *SMALL, *overrides, f"name={name}"]
        self.submitting = site.deployment.start(f"submit-{name}", *command, env=home)

    @property
    def folder(self) -> Path:
        """The run's folder; one that does not exist until the run has begun."""
        return self._site.link.run_folder(self._name) or self._site.link.running.folder / "none yet"

    def closed(self, server_round: int) -> None:
        """Wait until a round is completed."""
        until(
            lambda: True if len(self._rounds()) > server_round else self._still_running(),
            f"end of round {server_round}",
        )

    def current(self) -> int:
        """The number of the round that is not completed yet."""
        return len(self._rounds())

    def _rounds(self) -> list[dict[str, Any]]:
        return read_lines(self.folder / "metrics.jsonl")

    def _still_running(self) -> None:
        assert self.submitting.ended() is None, self.submitting.log()

    def status(self) -> dict[int, dict[int, str]]:
        """The status of each client in each round; checks that there are no duplicate records."""
        assert [row["round"] for row in self._rounds()] == list(range(len(self._rounds())))
        found: dict[int, dict[int, str]] = {}
        for row in read_lines(self.folder / "clients.jsonl"):
            if row["status"] in ("refused", JOINED, LEFT):  # of no message of the round
                continue
            clients = found.setdefault(row["round"], {})
            assert row["client"] not in clients
            assert row["status"] == "used" or row["reason"]
            clients[row["client"]] = row["status"]
        for row in self._rounds()[1:]:
            assert list(found[row["round"]].values()).count("used") == row["clients"]
        return found


def at_work(nodes: Iterable[Running], server_round: int) -> Iterator[Running]:
    """Each of these nodes, as soon as it works on the message of a round of the first run since it joined."""

    def works(node: Running) -> bool:
        received = node.log().count("Receiving: train message")
        return received == server_round and bool(of_messages(node.process.pid))

    waiting = list(nodes)
    while waiting:
        what = f"message of round {server_round} at {', '.join(node.name for node in waiting)}"
        found = until(lambda: next(filter(works, waiting), None), what)
        waiting.remove(found)
        yield found


def test_nodes_that_join_late_are_killed_or_hang(site: Site, nodes: dict[str, Running], tmp_path: Path) -> None:
    """The third joins during a round; in the next one the first is killed, and the second hangs to the timeout."""
    rounds = 9  # a node that was killed joins again at least four rounds before the last
    (tmp_path / "slow.py").write_text(SLOW)
    slow = (f"parts={tmp_path / 'slow.py'}", "client=slow")
    given = ("clients=3", "min_clients=2", f"rounds={rounds}", f"timeout={TIMEOUT}", "mute_rounds=9")
    run = Followed(site, "faults", *given, *slow, "strategy=fedavg")
    run.closed(0)
    nodes["three"] = site.join("three", part(2), program=WARM)
    assert until(nodes["three"].joined, "third node")
    bad = run.current() + 1
    assert bad <= rounds - 4, "the machine is too busy"
    for node in at_work([nodes["one"], nodes["two"]], bad):
        if node is nodes["one"]:
            node.kill()
        else:
            node.signal_all(signal.SIGSTOP)
    run.closed(bad)
    nodes["two"].signal_all(signal.SIGCONT)
    (nodes["one"],) = site.joined({"one": part(0)})
    assert until(run.submitting.ended, "end of the run", 600.0) == 0, run.submitting.log()

    status = run.status()
    assert (status[1][0], status[1][1]) == ("used", "used")
    assert status[bad].pop(2) == "used"
    assert set(status[bad]) == {0, 1}
    assert "used" not in status[bad].values()
    assert status[rounds] == {0: "used", 1: "used", 2: "used"}


def test_a_registered_node_that_claims_the_id_of_another_is_refused(site: Site, nodes: dict[str, Running]) -> None:
    """One of the two nodes with the partition id 0 is refused by name, the one whose key was registered later."""
    if "three" in nodes:
        stop(nodes.pop("three"))
    (claimant,) = site.joined({"three": part(0)})
    run = Followed(site, "claimed", "clients=3", "min_clients=2", "rounds=2", "strategy=fedavg")
    assert until(run.submitting.ended, "end of the run", 600.0) == 0, run.submitting.log()
    stop(claimant)

    (row,) = (row for row in read_lines(run.folder / "clients.jsonl") if row["status"] == "refused")
    refused, owner = ("one", "three") if str(row["node"]) == site.ids["one"] else ("three", "one")
    assert row["reason"].startswith(f"{refused} claims client id 0, which belongs to {owner}; ")
    assert run.status() == {t: {0: "used", 1: "used"} for t in (1, 2)}


def test_a_superlink_that_is_killed_and_restarted(site: Site, nodes: dict[str, Running], tmp_path: Path) -> None:
    """With its database: the nodes reconnect, and one command gives the bits of an uninterrupted run."""
    if "three" in nodes:
        stop(nodes.pop("three"))
    rounds = 9  # so many that some are left when it is killed
    given = ("clients=2", f"rounds={rounds}", "strategy=fednnnn+two_d_lrd", "strategy.local_steps=3")
    run = Followed(site, "resumed", *given, "strategy.window=0", "min_clients=2")
    run.closed(1)
    site.link.running.kill()
    again = site.deployment.superlink_again(site.link)
    until(lambda: answers(again), "answer of the SuperLink")
    assert until(run.submitting.ended, "end of the command") == 1
    done = site.deployment.fedstride("submit", "tls", f"resume={run.folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert folder_in(done.stdout) == run.folder
    assert run.status() == {t: {0: "used", 1: "used"} for t in range(1, rounds + 1)}
    whole = play(tmp_path, *SMALL, *given, "strategy.window=0", small=False).folder
    assert weights(run.folder) == weights(whole)
    assert table(run.folder) == table(whole)


FAILING = NO_ANSWER.partition("%s")[0]  # what a node logs before the error


def test_a_node_survives_errors_of_the_superlink(site: Site, nodes: dict[str, Running]) -> None:
    """Those of a locked database. The SuperLink starts no run afterwards, so this test is the last."""
    node = nodes["three"] = site.joined({"three": part(2)})[0]
    database = site.link.running.folder / "state.db"
    with closing(sqlite3.connect(database, isolation_level=None, timeout=60.0)) as locked:
        locked.execute("BEGIN EXCLUSIVE")
        until(lambda: FAILING in node.log() or None, "error of the SuperLink", 120.0)
    until(lambda: "the SuperLink answers again" in node.log() or None, "answer of the SuperLink", 120.0)
    assert node.ended() is None
    error = "HTTP 500" if uses_http() else "INTERNAL"
    assert len(re.findall(rf"{re.escape(FAILING)}[A-Za-z]+: {error}", node.log())) == 1, node.log()
