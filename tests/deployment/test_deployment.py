"""A SuperLink and SuperNodes as real processes, with TLS and node authentication: same bits, no stranger."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from desk import play, table, weights
from PIL import Image
from processes import IN, Running, Site, answers, folder_in, stop, until

from fedstride.tasks import data, partitions
from fedstride.tasks.parts import PARTITIONS, TASKS
from lab.deployment.certificates import make
from lab.results.runs import load

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("deployment")]  # one worker: the tests share their site

REAL = ("model=mlp", "clients=2", "rounds=2", "client.local_steps=3", "client.batch_size=20", "client.device=cpu")


@pytest.fixture(scope="module")
def pair(site: Site) -> Iterator[tuple[Running, Running]]:
    """Two nodes with a part of the task's data each."""
    nodes = [site.join(key, f"partition-id={k} num-partitions=2") for k, key in enumerate(("one", "two"))]
    for node in nodes:
        until(node.joined, f"joining of {node.name}")
    yield nodes[0], nodes[1]
    stop(*nodes)


# ---------------------------------------------------------------- who must not get in

UNKNOWN_KEY = r"\[code: 2004\] Failed to activate SuperNode"
SAID = {
    "unregistered": UNKNOWN_KEY,
    "wrong key": UNKNOWN_KEY,
    "no key": r"\[code: 2001\] SuperNode authentication is enabled",
    "another CA": "CERTIFICATE_VERIFY_FAILED: unable to get local issuer certificate",
    "expired": "CERTIFICATE_VERIFY_FAILED: certificate has expired",
    "plain text": "Option `--insecure` was set",
}


@pytest.fixture(scope="module")
def strangers(site: Site, pair: Any) -> dict[str, Running]:
    """All of them at once, each with one thing wrong; they start while other tests wait for their runs."""
    root = site.deployment.root
    foreign, expired, elsewhere = root / "foreign", root / "expired", root / "elsewhere"
    make(foreign, names=["localhost"])
    make(expired, names=["localhost"], days=1, now=datetime.now(UTC) - timedelta(days=3))
    make(elsewhere, nodes=["three"])  # the name of a registered node, but not its key
    late = site.deployment.superlink("late", expired)
    ours = ("--root-certificates", str(site.certificates / "ca.crt"))
    three = ("--auth-supernode-private-key", str(site.certificates / "three"))
    options: dict[str, tuple[str, ...]] = {
        "unregistered": (*ours, "--auth-supernode-private-key", str(site.certificates / "four")),
        "wrong key": (*ours, "--auth-supernode-private-key", str(elsewhere / "three")),
        "no key": ours,
        "another CA": ("--root-certificates", str(foreign / "ca.crt"), *three),
        "expired": ("--root-certificates", str(expired / "ca.crt"), *three),
        "plain text": ("--insecure", "--max-retries", "1"),
    }
    until(lambda: answers(late), "answer of the second SuperLink")
    return {
        name: site.deployment.supernode(
            name.replace(" ", "-"), late.fleet if name == "expired" else site.link.fleet, *given
        )
        for name, given in options.items()
    }


# ---------------------------------------------------------------- a run


def test_a_deployed_run_has_the_bits_of_the_desk(site: Site, pair: Any, tmp_path: Path) -> None:
    """By address, without a config.toml; the folder lies where the SuperLink stands."""
    there = ["--address", site.link.control, "--root-certificates", str(site.certificates / "ca.crt")]
    done = site.deployment.fedstride("submit", *there, *REAL, "name=deployed")
    assert done.returncode == 0, done.stdout + done.stderr + pair[0].log()
    folder = folder_in(done.stdout)
    assert folder == site.link.running.folder / "runs/deployed"
    desk = play(tmp_path, *REAL, small=False)
    assert weights(folder) == weights(desk.folder)
    assert table(folder) == table(desk.folder)
    assert f"final test accuracy {100 * desk.rows[-1]['test/accuracy']:.2f} %" in done.stdout
    assert "round   2" in done.stdout


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "overrides",
    [
        ("strategy=scaffold",),
        ("strategy=feddyn",),
        ("strategy=fedavg+noisy", "rounds=1", f"parts={EXAMPLES / 'own_wrapper.py'}"),
    ],
    ids=["scaffold", "feddyn", "parts of one's own"],
)
def test_what_clients_keep_and_parts_of_ones_own_give_the_bits_of_the_desk(
    site: Site, pair: Any, tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    """States lie with each node; the file of parts travels in the bundle, with a wrapper and its clients' half."""
    done = site.deployment.fedstride("submit", "tls", *REAL, *overrides)
    assert done.returncode == 0, done.stdout + done.stderr + pair[0].log()
    desk = play(tmp_path, *REAL, *overrides, small=False)
    assert weights(folder_in(done.stdout)) == weights(desk.folder)
    assert [row.get("screening/not_done") for row in load(folder_in(done.stdout)).rows[1:]] == [0] * (
        len(desk.rows) - 1
    )
    assert not any("note" in row for row in load(folder_in(done.stdout)).clients)


def test_a_run_that_fails_there_fails_here(site: Site, strangers: Any) -> None:
    done = site.deployment.fedstride("submit", "tls", "clients=3", "node_wait=0", "model=mlp")
    assert done.returncode == 1
    assert re.search(r"^error: run \d+ failed: .*clients = 3, but the federation has 2 nodes", done.stderr, re.M)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_leaves_the_run_going(site: Site, pair: Any) -> None:
    command = ["python", "-m", "lab.cli.main", "submit", "tls", "clients=3", "node_wait=600", "model=mlp"]
    submitting = site.deployment.start("submitting", *command, env={"FLWR_HOME": site.desk.env["FLWR_HOME"]})
    begun = until(lambda: re.search(r"run (\d+) submitted(?s:.*)Start `flwr-serverapp`", submitting.log()), "run")
    submitting.interrupt()
    assert until(submitting.ended, "end of the command") == 130
    said = submitting.log()
    assert "no longer followed; the run goes on" in said
    assert f"flwr log {begun[1]} tls" in said
    assert "Traceback" not in said
    run = site.desk.flwr("list", "tls", "--run-id", begun[1])["runs"][0]
    assert run["status"] in ("pending", "starting", "running")
    assert f"flwr stop {begun[1]} tls" in said
    assert site.desk.flwr("stop", begun[1], "tls")["success"]


# ---------------------------------------------------------------- strangers


@pytest.mark.parametrize("stranger", SAID)
def test_a_stranger_is_refused(strangers: dict[str, Running], stranger: str) -> None:
    node = strangers[stranger]
    assert until(node.ended, f"end of the node ({stranger})") != 0
    assert re.search(SAID[stranger], node.log()), node.log()
    assert "Exit Code: 305" in node.log()  # Flower's: no connection to the SuperLink
    assert IN not in node.log()


def test_only_the_pair_is_online(site: Site, strangers: dict[str, Running]) -> None:
    for node in strangers.values():
        until(node.ended, f"end of {node.name}")
    assert site.desk.online() == {site.ids["one"], site.ids["two"]}


# ---------------------------------------------------------------- own data


def own_npz(path: Path, positions: np.ndarray) -> Path:
    source = data.load(TASKS.config("mnist5k")())
    np.savez(path, images=source.train_x[positions, 0], labels=source.train_y[positions])
    return path


def own_folder(path: Path, positions: np.ndarray) -> Path:
    source = data.load(TASKS.config("mnist5k")())
    for label in range(source.classes):
        (path / str(label)).mkdir(parents=True)
    for position in positions:
        image = Image.fromarray(source.train_x[position, 0])
        image.save(path / str(source.train_y[position]) / f"{position:05}.png")
    return path


def test_nodes_bring_their_own_data(site: Site, pair: Any, tmp_path: Path) -> None:
    """The same keys on restarted nodes: they come back as who they were, with data in place of a number."""
    stop(*pair)
    source = data.load(TASKS.config("mnist5k")())
    parts = partitions.partition(PARTITIONS.config("iid")(), source.train_y, 20, 1)
    first = own_npz(tmp_path / "first.npz", parts[0])
    second = own_folder(tmp_path / "second", parts[1][:60])
    nodes = [site.join("one", f'data="{first}"'), site.join("two", f'data="{second}"')]
    for node in nodes:
        until(node.joined, f"joining of {node.name}")
    done = site.deployment.fedstride("submit", "tls", *REAL, "rounds=1", "partition=own", "name=own")
    assert done.returncode == 0, done.stdout + done.stderr + nodes[0].log() + nodes[1].log()
    rows = {row["client"]: row for row in load(folder_in(done.stdout)).clients}
    assert {str(client) for client in rows} == {site.ids["one"], site.ids["two"]}
    assert rows[int(site.ids["one"])]["num-examples"] == 200
    assert rows[int(site.ids["two"])]["num-examples"] == 60
    assert all(row["status"] == "used" for row in rows.values())
