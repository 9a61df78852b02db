"""Hostile nodes with real processes: what they send costs them their replies, and nobody else anything."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hostile
import pytest
from desk import play, weights
from flwr.app import Context, Message, MessageType
from flwr.clientapp import ClientApp
from processes import PLAIN, WARM, Deployment, Running, folder_in, listening, superlink_addresses, until

from client_app.app import app as real
from server_app.records.line_files import read_lines

pytestmark = pytest.mark.slow

HONEST, NODES = 2, 24
CLIENTS = HONEST + NODES
ROUNDS = -(-len(hostile.ALL) // NODES)
GIVEN = (
    *("model=mlp", "client.local_steps=3", "client.batch_size=20", "client.device=cpu", "strategy=fedavg"),
    *(f"clients={CLIENTS}", f"rounds={ROUNDS}", "timeout=120"),
)


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[tuple[Path, Running]]:
    """The folder of a run with two SuperNodes and a process of hostile nodes, and this process."""
    tests = Path(__file__).parents[1]
    with Deployment(tmp_path_factory.mktemp("hostile")) as deployment:
        control, fleet = superlink_addresses()
        link = deployment.start(
            "superlink",
            *(*PLAIN, "--insecure", *listening(control, fleet)),
        )
        until(lambda: True if "Uvicorn running" in link.log() else None, "start of the SuperLink")
        for k in range(HONEST):
            config = f"partition-id={k} num-partitions={CLIENTS}"
            deployment.supernode(f"honest-{k}", fleet, "--insecure", node_config=config, program=WARM)
        attacker = deployment.start(
            "attacker",
            *(sys.executable, str(tests / "deployment/hostile.py"), fleet),
            *map(str, (HONEST, CLIENTS, NODES)),
            env={"PYTHONPATH": ":".join([str(tests), *sys.path])},
        )
        command = [sys.executable, "-m", "lab.cli.main", "submit", "--address", control, "--insecure", *GIVEN]
        submitting = deployment.start("submit", *command)
        assert until(submitting.ended, "end of the run", 800.0) == 0, submitting.log() + attacker.log()
        place = ("--address", control, "--insecure")
        run = re.search(r"run (\d+) submitted", submitting.log())
        assert run
        fetched = deployment.fedstride("fetch", run[1], *place)
        assert fetched.returncode == 1
        assert "this SuperLink hands over no files: start it with fedstride superlink" in fetched.stderr
        yield folder_in(submitting.log()), attacker


def test_each_kind_is_rejected_under_its_clients_id(attacked: tuple[Path, Running]) -> None:
    """With a reason, in the round in which it was sent; what never comes completely is `no reply`."""
    folder, attacker = attacked
    rows = {(row["round"], row["client"]): row for row in read_lines(folder / "clients.jsonl")}
    log = attacker.log()
    said = re.findall(r"round (\d+): client (\d+): (sent|refused \(.*\)): (.*)", log)
    found = {kind: rows[int(server_round), int(client)] for server_round, client, _, kind in said}
    assert set(found) == set(hostile.ALL)
    refused = {kind for _, _, outcome, kind in said if outcome != "sent"}
    assert refused == set(), "kinds that the SuperLink refuses itself do not belong here"
    absent = {"an object that never comes"}
    assert {kind for kind, row in found.items() if row["status"] == "no reply"} == absent
    for kind, row in found.items():
        if kind not in absent:
            assert row["status"] == "rejected", kind
            assert row["reason"].isprintable()
    assert sum(row["status"] == "used" for row in rows.values()) == HONEST * ROUNDS
    assert hostile.UNASKED not in log  # they were sent too


def test_the_model_has_the_bits_of_a_run_without_them(attacked: tuple[Path, Running], tmp_path: Path) -> None:
    folder, _ = attacked
    client = ClientApp()

    @client.train()
    def train(message: Message, context: Context) -> Message:
        if int(context.node_config["partition-id"]) >= HONEST:
            raise ValueError("not used")
        return real(message, context)

    @client.query()
    def query(message: Message, context: Context) -> Message:
        assert message.metadata.message_type == MessageType.QUERY
        return real(message, context)

    plain: Any = play(tmp_path, *GIVEN, app=client, small=False)
    assert weights(folder) == weights(plain.folder)
