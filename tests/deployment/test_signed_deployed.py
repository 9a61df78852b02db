"""Signed runs in a deployment: nodes that answer no other, a replay, a resume, an approval."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from desk import play, weights
from processes import Running, Site, folder_in, own_data, stop, until

from fedstride.messages.signed_runs import RUN_CONFIG
from lab.deployment.app_signing import new_key
from lab.deployment.run_signing import RunSigner
from lab.flower import submission
from node.log.verification import read
from server_app.config.compose import compose

pytestmark = pytest.mark.slow

REAL = ("model=mlp", "clients=2", "client.batch_size=20", "client.device=cpu")
RUN = ("strategy=two_d_lrd", "strategy.window=0", "holdout=0.2", "evaluate_clients=true", "rounds=3")
Join = Callable[..., list[Running]]


@pytest.fixture(scope="module")
def keys(site: Site) -> Path:
    """A key, and a policy for nodes that answer its runs only."""
    folder = site.deployment.root / "keys"
    new_key(folder / "study")
    (folder / "policy.toml").write_text('members = "nodes.pub"\n[signers]\nstudy = "study.pub"\n')
    (folder / "ask.toml").write_text('approve = "ask"\n[signers]\nstudy = "study.pub"\n')
    (folder / "nodes.pub").write_text(
        "".join((site.certificates / f"{name}.pub").read_text() for name in ("one", "two"))
    )
    return folder


def configs(policy: Path) -> dict[str, str]:
    return {key: f'partition-id={k} num-partitions=2 policy="{policy}"' for k, key in enumerate(("one", "two"))}


def signed(site: Site, keys: Path, *overrides: str) -> subprocess.CompletedProcess[str]:
    options = ("--key", str(keys / "study"), "--nodes", str(keys / "nodes.pub"))
    return site.deployment.fedstride("submit", "tls", *options, *REAL, *overrides)


def reasons(site: Site, key: str = "one") -> list[str]:
    """Why this node has refused messages, as its log says."""
    rows = read(site.deployment.root / key / "home" / "node-log.jsonl").rows
    return [str(row["reason"]) for row in rows if row["event"] == "refused"]


def test_nodes_answer_what_was_signed_and_nothing_else(
    site: Site, join: Join, keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLWR_HOME", site.desk.env["FLWR_HOME"])
    join(configs(keys / "policy.toml"))
    unsigned = site.deployment.fedstride("submit", "tls", *REAL, *RUN, "node_wait=5", "name=unsigned")
    assert unsigned.returncode == 1 and "the run is not signed" in unsigned.stdout + unsigned.stderr
    assert reasons(site)[-1] == "code 901: it has no signature"

    done = signed(site, keys, *RUN, "name=signed")
    assert done.returncode == 0, done.stdout + done.stderr
    local = play(tmp_path, *REAL, *RUN, small=False)
    assert weights(folder_in(done.stdout)) == weights(local.folder)
    assert len(reasons(site)) == 1

    resumed = signed(site, keys, f"resume='{folder_in(done.stdout)}'", "rounds=4")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert len(reasons(site)) == 1

    sent: list[tuple[bytes, Mapping[str, str]]] = []
    given = [*REAL, "rounds=1", "name=once", "node_wait=5"]

    def capture(bundle: bytes, config: Mapping[str, str]) -> str:
        text = RunSigner(keys / "study", keys / "nodes.pub").sign(compose(given), bundle, config)
        sent.append((bundle, {**config, RUN_CONFIG: text}))
        return text

    first = submission.submit(site.link.target, given, None, capture)
    until(lambda: site.desk.run(first).finished or None, "end of the run")
    with site.desk.asking() as connection:
        second = str(connection.start(*sent[0]))
    until(lambda: site.desk.run(second).finished or None, "end of the replay")
    assert (site.desk.run(first).end, site.desk.run(second).end) == ("completed", "failed")
    assert reasons(site)[-1].endswith(f"has started run {first}, and is used again by {second}")


def test_a_run_waits_until_a_person_at_the_node_has_approved_it(site: Site, join: Join, keys: Path) -> None:
    site.forget()
    join(configs(keys / "ask.toml"))
    command = [
        sys.executable,
        "-m",
        "lab.cli.main",
        "submit",
        "tls",
        "--key",
        str(keys / "study"),
        *REAL,
        "rounds=1",
    ]
    running = subprocess.Popen(
        [*command, "name=asked"], env=site.deployment.env(site.deployment.desk), stdout=subprocess.PIPE, text=True
    )
    try:
        for key in ("one", "two"):
            home = site.deployment.root / key / "home"

            def approving(*arguments: str, home: Path = home) -> str:
                return site.deployment.fedstride("node-approve", *arguments, env={"FLWR_HOME": str(home)}).stdout

            found = until(lambda ask=approving: re.match(r"[0-9a-f]{16}", ask()), "run that waits")
            said = approving(found[0], "--yes")
            assert "'study'" in said and "rounds     1" in said and f"approved {found[0]}" in said
            assert "as the server says" in said
        assert running.wait(180) == 0
    finally:
        running.kill()


DATA_FILE = """targets = ["ill"]
[columns]
age = { least = 0, most = 120 }
crp = { least = 0, most = 2000, empty = true }
ill = ["no", "yes"]
"""
COLUMNS = ("task=own_table", "task.columns=['age','crp']", "task.target=ill", "task.classes=[no,yes]",
           "task.missing=mean", "model=mlp", "partition=own", "clients=2", "node_wait=5")  # fmt: skip


def test_sites_are_asked_what_their_data_are_like_and_only_where_the_policy_allows_it(
    site: Site, join: Join, keys: Path, tmp_path: Path
) -> None:
    site.forget()
    given = {}
    for number, key in enumerate(("one", "two")):
        rng = np.random.default_rng(number)
        crp = rng.lognormal(2, 1, 200) * (0.1 if key == "two" else 1.0)
        cells = [
            f"{age:.0f},{'' if row == 3 else f'{value:.2f}'},{'yes' if row % 3 else 'no'},p{row}"
            for row, (age, value) in enumerate(zip(rng.normal(54, 9, 200), crp, strict=True))
        ]
        (tmp_path / f"{key}.csv").write_text("\n".join(["age,crp,ill,name", *cells]))
        policy = (
            f'description = {"true" if key == "one" else "false"}\n[signers]\nstudy = "{keys / "study.pub"}"\n'
        )
        given[key] = own_data(tmp_path / key, tmp_path / f"{key}.csv", DATA_FILE, policy)
    nodes = join(given)

    def check(name: str, code: int) -> str:
        options = ("--connection", "tls", "--key", str(keys / "study"), "-o", str(tmp_path / f"{name}.html"))
        done = site.deployment.fedstride("check", *options, *COLUMNS)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    first = check("first", 1)  # a site does not answer
    assert re.search(r"rows +200 +no answer\n", first) and "below 20 missing" in first
    assert "the policy of this node does not allow this: description" in first
    assert reasons(site, "two")[-1].startswith("code 901: it asks what the data are like")
    stop(*nodes)
    (tmp_path / "two/policy.toml").write_text((tmp_path / "one/policy.toml").read_text())
    join(given)
    second = check("second", 0)
    assert re.search(r"rows +200 +200\n", second)
    assert re.search(r"one: distributed differently than at the other sites: crp", second)
    assert "is its unit the same?" in second and "is its unit the same?" in (tmp_path / "second.html").read_text()
    for text in (second, first, (tmp_path / "second.html").read_text()):
        assert "p17" not in text
    rows = read(site.deployment.root / "one" / "home" / "node-log.jsonl").rows
    assert [row["description"] for row in rows if row["event"] == "answered"] == [True, True]
    assert "columns that the run does not name: 'name'" in nodes[0].log()
    assert "columns that the run does not name: 'name'" not in second
