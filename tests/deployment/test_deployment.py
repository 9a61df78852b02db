"""A SuperLink and SuperNodes as real processes, with TLS and node authentication: results, refused nodes."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from desk import play, table, weights
from page_of_own_data import BLOOD, DATA_FILE, POLICY, TABLES
from PIL import Image
from processes import (
    PLAIN,
    STOCK,
    WARM,
    Running,
    Site,
    answers,
    folder_in,
    listening,
    own_data,
    stop,
    superlink_addresses,
    until,
)
from safetensors.numpy import load_file, save_file

from fedstride.error_kinds import ErrorKind, Fault
from fedstride.tasks import data
from fedstride.tasks.partitions import schemes
from fedstride.tasks.registry import PARTITIONS, TASKS
from lab.deployment.certificates import make
from lab.flower.flower_command import free_port
from lab.results.run_folders import load

pytestmark = pytest.mark.slow

REAL = ("model=mlp", "clients=2", "rounds=2", "client.local_steps=3", "client.batch_size=20", "client.device=cpu")


@pytest.fixture(scope="module")
def pair(site: Site) -> Iterator[tuple[Running, Running]]:
    """Two nodes, each with a part of the task's data."""
    nodes = site.pair()
    yield nodes[0], nodes[1]
    stop(*nodes)


# ---------------------------------------------------------------- nodes to refuse

UNKNOWN_KEY = r"does not accept this node's key \(code 2004\): it is not registered there"
REASONS = {
    "unregistered": UNKNOWN_KEY,
    "wrong key": UNKNOWN_KEY,
    "no key": r"accepts registered keys only, and this node has none \(code 2001\): give --auth-supernode-private",
    "another CA": r"its certificate is not accepted \(unable to get local issuer certificate\): it is not signed",
    "expired": r"certificate is not accepted \(certificate has expired\): the SuperLink needs a new one",
    "plain text": "it uses TLS, and this node was started with --insecure; give --root-certificates",
    "TLS": r"it does not use TLS \(WRONG_VERSION_NUMBER\), and this node expects it; check the port",
    "no process": "no connection: Connection refused",
}
"""What an operator reads."""


@pytest.fixture(scope="module")
def invalid_nodes(site: Site, pair: Any) -> dict[str, Running]:
    """All invalid nodes, each with one fault; they start while other tests wait for their runs."""
    root = site.deployment.root
    foreign, expired, elsewhere = root / "foreign", root / "expired", root / "elsewhere"
    make(foreign, names=["localhost"])
    make(expired, names=["localhost"], days=1, now=datetime.now(UTC) - timedelta(days=3))
    make(elsewhere, nodes=["three"])  # the name of a registered node, but another key
    late = site.deployment.superlink("late", expired)
    control, plain = superlink_addresses()
    open_to_all = ("--insecure", *listening(control, plain))
    without_tls = site.deployment.start("without-tls", *PLAIN, *open_to_all)
    trust = ("--root-certificates", str(site.certificates / "ca.crt"))
    three = ("--auth-supernode-private-key", str(site.certificates / "three"))
    options: dict[str, tuple[str, ...]] = {
        "unregistered": (*trust, "--auth-supernode-private-key", str(site.certificates / "four")),
        "wrong key": (*trust, "--auth-supernode-private-key", str(elsewhere / "three")),
        "no key": trust,
        "another CA": ("--root-certificates", str(foreign / "ca.crt"), *three),
        "expired": ("--root-certificates", str(expired / "ca.crt"), *three),
        "plain text": ("--insecure",),
        "TLS": (*trust, *three),
        "no process": (*trust, *three),
    }
    until(lambda: answers(late), "answer of the second SuperLink")
    until(lambda: True if "Uvicorn running" in without_tls.log() else None, "start of the third SuperLink")
    others = {"expired": late.fleet, "TLS": plain, "no process": f"127.0.0.1:{free_port()}"}
    return {
        name: site.deployment.supernode(
            f"refused-{name.replace(' ', '-')}", others.get(name, site.link.fleet), *given, program=WARM
        )
        for name, given in options.items()
    }


# ---------------------------------------------------------------- a run


def test_a_deployed_run_has_the_bits_of_a_run_in_process(site: Site, pair: Any, tmp_path: Path) -> None:
    """By address, without a config.toml; the run folder is below the SuperLink's folder."""
    options = ["--address", site.link.control, "--root-certificates", str(site.certificates / "ca.crt")]
    done = site.deployment.fedstride("submit", *options, *REAL, "name=deployed")
    assert done.returncode == 0, done.stdout + done.stderr + pair[0].log()
    folder = folder_in(done.stdout)
    assert folder == site.link.run_folder("deployed")
    local = play(tmp_path, *REAL, small=False)
    assert weights(folder) == weights(local.folder)
    assert table(folder) == table(local.folder)
    assert f"final test accuracy {100 * local.rows[-1]['test/accuracy']:.2f} %" in done.stdout
    assert "round   2" in done.stdout


def test_a_submission_that_does_not_reach_the_superlink_says_why(site: Site) -> None:
    """The wrong CA, plain text, the port for nodes."""
    foreign = site.deployment.root / "of-another-ca"
    make(foreign, names=["localhost"])
    trust = ["--root-certificates", str(site.certificates / "ca.crt")]
    cases = [
        (site.link.control, ["--root-certificates", str(foreign / "ca.crt")], "is not signed by the CA in"),
        (site.link.control, ["--insecure"], "uses TLS; give the CA's certificate"),
    ]
    if site.link.fleet != site.link.control:
        cases.append((site.link.fleet, trust, "is not a SuperLink"))
    for address, options, words in cases:
        done = site.deployment.fedstride("submit", "--address", address, *options, "rounds=1")
        assert done.returncode == 1
        assert words in done.stderr
        assert len(done.stderr.splitlines()) == 1


EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize(
    "overrides",
    [
        ("strategy=scaffold",),
        ("strategy=feddyn",),
        ("strategy=fedavg+noisy", "rounds=1", f"parts={EXAMPLES / 'own_wrapper.py'}"),
    ],
    ids=["scaffold", "feddyn", "user-defined parts"],
)
def test_client_states_and_user_defined_parts_give_the_bits_of_a_run_in_process(
    site: Site, pair: Any, tmp_path: Path, overrides: tuple[str, ...]
) -> None:
    """Each node stores its client's state; the bundle contains the file with a wrapper and its client half."""
    done = site.deployment.fedstride("submit", "tls", *REAL, *overrides)
    assert done.returncode == 0, done.stdout + done.stderr + pair[0].log()
    local = play(tmp_path, *REAL, *overrides, small=False)
    assert weights(folder_in(done.stdout)) == weights(local.folder)
    assert [row.get("screening/not_done") for row in load(folder_in(done.stdout)).rows[1:]] == [0] * (
        len(local.rows) - 1
    )
    assert not any("note" in row for row in load(folder_in(done.stdout)).clients.rows)


def test_a_run_that_fails_on_the_superlink_fails_the_command(site: Site, invalid_nodes: Any) -> None:
    done = site.deployment.fedstride("submit", "tls", "clients=3", "node_wait=0", "model=mlp")
    assert done.returncode == 1
    assert re.search(r"^error: run \d+ failed: .*clients = 3, but the federation has 2 nodes", done.stderr, re.M)
    whole = done.stdout + done.stderr
    assert whole.count("clients = 3, but the federation has 2 nodes") == 1
    assert "Traceback" not in whole and "Exit Code" not in whole


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_does_not_stop_the_run(site: Site, pair: Any) -> None:
    command = ["python", "-m", "lab.cli.main", "submit", "tls", "clients=3", "node_wait=600", "model=mlp"]
    submitting = site.deployment.start("submitting", *command, env={"FLWR_HOME": site.desk.env["FLWR_HOME"]})
    started = until(lambda: re.search(r"run (\d+) submitted(?s:.*)submitted by ", submitting.log()), "run")
    submitting.interrupt()
    assert until(submitting.ended, "end of the command") == 130
    log = submitting.log()
    assert "no longer followed; the run continues" in log
    assert f"fedstride logs --follow {started[1]} tls" in log
    assert "Traceback" not in log
    assert site.desk.run(started[1]).status == "running"
    assert f"fedstride stop {started[1]} tls" in log
    assert site.desk.stop(started[1])


# ---------------------------------------------------------------- refused nodes


@pytest.mark.parametrize("fault", REASONS)
def test_an_invalid_node_is_refused(invalid_nodes: dict[str, Running], fault: str) -> None:
    """In one line."""
    node = invalid_nodes[fault]
    assert until(node.ended, f"end of the node ({fault})") == 1
    confined, name_of_log, line = node.log().splitlines()
    assert confined.startswith("apps are ") and name_of_log.startswith("this node's log: ")
    assert line.startswith("error: the node cannot join the SuperLink at ")
    assert re.search(REASONS[fault], line), line


def test_a_refused_node_ends_within_ten_seconds(site: Site, pair: Any) -> None:
    """The one that needs longest: another process may begin to listen on its SuperLink's port."""
    given = ("--superlink", f"127.0.0.1:{free_port()}", "--insecure")
    began = time.monotonic()
    node = site.deployment.start("nobody-there", *WARM, *given)
    assert node.process.wait(60) == 1
    assert time.monotonic() - began < 15  # with the start of Python, on a machine that may be busy


def test_only_the_pair_is_online(site: Site, invalid_nodes: dict[str, Running]) -> None:
    for node in invalid_nodes.values():
        until(node.ended, f"end of {node.name}")
    assert site.desk.online() == {site.ids["one"], site.ids["two"]}


# ---------------------------------------------------------------- data of the nodes


def own_npz(path: Path, positions: np.ndarray) -> Path:
    source = data.load(TASKS.config("mnist5k")())
    np.savez(path, images=source.train_x[positions, 0], labels=source.train_y[positions])
    return path


def own_folder(path: Path, positions: np.ndarray) -> Path:
    source = data.load(TASKS.config("mnist5k")())
    for label in range(source.spec.classes):
        (path / str(label)).mkdir(parents=True)
    for position in positions:
        image = Image.fromarray(source.train_x[position, 0])
        image.save(path / str(source.train_y[position]) / f"{position:05}.png")
    return path


def test_nodes_with_their_own_data(site: Site, pair: Any, tmp_path: Path) -> None:
    """Nodes restarted with the same keys keep their identities; they now have data instead of a partition id."""
    stop(*pair)
    source = data.load(TASKS.config("mnist5k")())
    parts = schemes.partition(PARTITIONS.config("iid")(), source.divisible, 20, 1)
    first = own_npz(tmp_path / "first.npz", parts[0])
    second = own_folder(tmp_path / "second", parts[1][:7])
    said = '[examples]\nkind = "image"\nshape = [1, 28, 28]\nclasses = 10\n'
    nodes = site.joined(
        {
            "one": own_data(tmp_path / "one", first, said),
            "two": own_data(tmp_path / "two", second, said, "min_rows = 5"),
        }
    )
    done = site.deployment.fedstride("submit", "tls", *REAL, "rounds=1", "partition=own", "name=own")
    assert done.returncode == 0, done.stdout + done.stderr + nodes[0].log() + nodes[1].log()
    rows = {row["client"]: row for row in load(folder_in(done.stdout)).clients.rows}
    assert set(rows) == {"one", "two"}  # the names under which their keys were registered
    assert 140 <= rows["one"]["num-examples"] <= 180  # about a fifth of 200 is held out
    assert 5 <= rows["two"]["num-examples"] <= 6  # and of 7, which are too few to measure
    assert rows["one"]["local/num-examples"] >= 20 and rows["two"]["local/num-examples"] == 0
    assert "it holds out fewer rows than its site says something of" in rows["two"]["note"]
    assert all(row["status"] == "used" for row in rows.values())
    assert of_test(rows["two"]) == {} and of_test(rows["one"]) == {"membership/not-allowed": 1}
    assert "local/accuracy" in rows["one"]  # its figures leave all the same
    card = (folder_in(done.stdout) / "MODEL_CARD.md").read_text()
    assert "Not tested at the smallest site that was measured, one: the policy of the site does not" in card
    stop(*nodes)


def test_hospitals_with_tables_have_the_bits_of_one_machine(site: Site, pair: Any, tmp_path: Path) -> None:
    """docs/own-data.md on real nodes: they have nothing but a CSV file, and learn the normalisation together."""
    stop(*pair)
    (tmp_path / "blood.py").write_text(BLOOD)
    subprocess.run([sys.executable, "-c", TABLES], cwd=tmp_path, check=True, timeout=60)
    files = [tmp_path / f"hospital-{k}.csv" for k in range(2)]
    policy = f"{POLICY}\nmembership = true\nfolds = true\n"
    nodes = site.joined(
        {
            key: f"{own_data(tmp_path / key, files[k], DATA_FILE, policy)} partition-id={k}"
            for k, key in enumerate(("one", "two"))
        }
    )
    chosen = ["task=blood", "model=mlp", "task.metrics=[auroc,accuracy]", "rounds=2", "clients=2", "partition=own"]
    chosen += ["client.batch_size=40"]  # with which no batch at a site is too small to be one of its own
    parts = f"parts={tmp_path / 'blood.py'}"
    done = site.deployment.fedstride("submit", "tls", parts, *chosen, "name=hospitals")
    assert done.returncode == 0, done.stdout + done.stderr + nodes[0].log() + nodes[1].log()
    assert "final local auroc 0.9" in done.stdout
    given = f"partition.files=[{files[0]},{files[1]}]"
    local = play(tmp_path / "local", parts, *chosen, given, small=False)
    folder = folder_in(done.stdout)
    assert weights(folder) == weights(local.folder)
    assert (folder / "task.json").read_text() == (local.folder / "task.json").read_text()
    told = [[of_test(row) for row in load(each).clients.rows] for each in (folder, local.folder)]
    assert told[0] == told[1] and sum(map(bool, told[0])) == 1
    assert "AUROC" in (folder / "MODEL_CARD.md").read_text().partition("## Membership")[2].partition("\n## ")[0]
    (models := site.deployment.root / "superlink/models").mkdir(exist_ok=True)
    for name in ("model.safetensors", "task.json"):
        shutil.copy(folder / name, models)
    measuring = [each for each in chosen if each != "rounds=2"]
    measuring += ["rounds=0", f"initial='{models / 'model.safetensors'}'", "name=measured"]
    done = site.deployment.fedstride("submit", "tls", parts, *measuring)
    assert done.returncode == 0, done.stdout + done.stderr + nodes[0].log() + nodes[1].log()
    trained, measured = load(folder), load(folder_in(done.stdout))
    assert local_figures(measured.rows[0]) == local_figures(trained.rows[-1])
    last = [local_figures(row) for row in trained.clients.rows if row["round"] == 2]
    assert [local_figures(row) for row in measured.clients.rows] == last
    assert [row["client"] for row in measured.clients.rows] == [0, 1]  # both said their partition-id
    _check_two_models(site, parts, measuring, models, tmp_path, given)
    fold = [*chosen, "fold=3"]
    done = site.deployment.fedstride("submit", "tls", parts, *fold, "name=fold")
    assert done.returncode == 0, done.stdout + done.stderr + nodes[0].log() + nodes[1].log()
    other = play(tmp_path / "fold", parts, *fold, given, small=False)
    assert weights(folder_in(done.stdout)) == weights(other.folder) != weights(folder)
    stop(*nodes)


def _check_two_models(
    site: Site, parts: str, measuring: list[str], models: Path, folder: Path, given: str
) -> None:
    """Two models in one message: the nodes' figures and differences have the bits of one machine."""
    first = load_file(models / "model.safetensors")
    save_file({name: np.float32(0.9) * array for name, array in first.items()}, models / "older.safetensors")
    both = [*measuring[:-1], f"against='{models / 'older.safetensors'}'"]
    done = site.deployment.fedstride("submit", "tls", parts, *both, "name=both")
    assert done.returncode == 0, done.stdout + done.stderr
    local = load(play(folder / "both", parts, *both, given, small=False).folder)
    found = load(folder_in(done.stdout))
    assert figures_of_both(found.rows[0]) == figures_of_both(local.rows[0])
    rows = [figures_of_both(row) for row in found.clients.rows]
    assert rows == [figures_of_both(row) for row in local.clients.rows]
    for row in rows:
        assert row["difference/auroc/low"] <= row["difference/auroc"] <= row["difference/auroc/high"]
        assert row["against/loss"] != row["local/loss"]
    assert "## Two models" in (found.folder / "MODEL_CARD.md").read_text()
    outside = site.deployment.fedstride("submit", "tls", parts, *measuring[:-1], f"against='{folder}/x'")
    assert outside.returncode != 0


def figures_of_both(row: Mapping[str, Any]) -> dict[str, Any]:
    """Without the AUROC of each: nodes make it of bins of at least min_rows rows, the difference of the scores."""
    starts = ("local/acc", "local/loss", "against/acc", "against/loss", "difference/")
    return {key: value for key, value in row.items() if key.startswith(starts)}


def of_test(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key.startswith("membership/")}


def local_figures(row: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key.startswith("local/")}


CANARY = "Jane-Doe-19560412"
ASKS = ["task=own_table", "task.target=ill", "task.classes=[no,yes]", "model=mlp", "rounds=1", "partition=own"]


class Tables(NamedTuple):
    """Two nodes with a table each; one node is ours, the other one Flower's own."""

    files: list[Path]
    ours: Running
    flowers: Running


ROWS = "".join(f"{CANARY},{30 + n / 4},{'yes' if n % 3 else 'no'}\n" for n in range(400))
HEAD = "patient,age,ill\n"


@pytest.fixture(scope="module")
def tables(site: Site, pair: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    stop(*pair)
    folder = tmp_path_factory.mktemp(CANARY)
    files = [folder / f"{k}.csv" for k in range(2)]
    for file in files:
        file.write_text(HEAD + ROWS)
    said = 'targets = ["ill"]\n[columns]\nage = { least = 0, most = 200 }\nill = ["no", "yes"]\n'
    [ours] = site.joined({"one": own_data(folder / "one", files[0], said)})
    [flowers] = site.joined({"two": f'data="{files[1]}"'}, program=STOCK)
    yield Tables(files, ours, flowers)
    stop(ours, flowers)


def test_a_run_is_not_resumed_with_other_data(site: Site, tables: Tables) -> None:
    """A row more at our node: it refuses, and goes on when the submitter allows it."""

    def submitted(*overrides: str) -> tuple[int, str]:
        done = site.deployment.fedstride("submit", "tls", *overrides)
        return done.returncode, done.stdout + done.stderr

    code, said = submitted(*ASKS, "task.columns=[age]", "clients=2", "name=ages")
    assert code == 0, said
    resumed = (f"resume={site.link.run_folder('ages')}", "rounds=2")
    tables.files[0].write_text(f"{HEAD}{ROWS}P,31,no\n")
    code, said = submitted(*resumed)
    assert (code, str(Fault(ErrorKind.CHANGED_DATA)) in said) == (1, True), said
    code, said = submitted(*resumed, "allow=[changed_data]")
    assert code == 0, said


def test_errors_at_nodes_leave_without_a_word_of_the_data(site: Site, tables: Tables) -> None:
    """A submitter asks for names; then a row does not fit."""
    answers = {
        'task.columns=["patient=?|??"]': ("reading.columns", ErrorKind.SETTING, ErrorKind.DATA),
        "task.columns=[age]": ("", ErrorKind.DATA, ErrorKind.DATA),
    }
    for asked, (key, ours, others) in answers.items():
        done = site.deployment.fedstride("submit", "tls", *ASKS, asked, "clients=2", f"name=canary-{len(asked)}")
        said_of_it = done.stdout + done.stderr
        assert done.returncode == 1, said_of_it
        assert str(Fault(ours, key)) in said_of_it and str(Fault(others)) in said_of_it, said_of_it
        for file in tables.files:  # with one row that is not as the data file says
            file.write_text(f"{HEAD}{ROWS}P,{CANARY},no\n")
    assert CANARY in tables.ours.log() and CANARY in tables.flowers.log()
    root = site.deployment.root
    seen = [each for name in ("superlink", "desk") for each in (root / name).rglob("*") if each.is_file()]
    assert any(each.name.startswith("state.db") for each in seen)
    assert [each for each in seen if CANARY.encode() in each.read_bytes()] == []
    assert CANARY not in said_of_it
