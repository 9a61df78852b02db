"""`fedstride node` in a deployment with TLS and node authentication: bits, clients that fail, what is left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from desk import play, table, weights
from page_of_own_data import BLOOD, DATA_FILE, TABLES
from pids import is_alive
from processes import STOCK, Running, Site, descendants, folder_in, of_messages, own_data, stop, until

from confinement import support
from fedstride.error_kinds import ErrorKind, Fault
from lab.cli.submit import signature_of
from lab.deployment.app_signing import new_key, sign
from lab.flower import submission
from lab.flower.superlink_choice import named
from lab.results.run_folders import load
from node.log.verification import read
from node.processes.warm_template import FREE_SUPERVISORS

pytestmark = pytest.mark.slow

REAL = ("model=mlp", "clients=2", "client.local_steps=3", "client.batch_size=20", "client.device=cpu")
Join = Callable[..., list[Running]]
LIMIT = 40  # seconds for a message; what is not meant to hang takes less than one, on a machine that is not busy

FRAGILE = '''
import os, time
from dataclasses import dataclass
from fedstride import Method, Plan, part

@part(client="fragile")
@dataclass
class Fragile(Method):
    """Client 0 crashes in round 2, and client 1 hangs in round 3."""

    def begin(self, job, received, state):
        if (job.client_id, job.server_round) == (0, 2):
            os.abort()
        if (job.client_id, job.server_round) == (1, 3):
            time.sleep(600)
        return Plan()
'''

HANGING = FRAGILE.replace("(job.client_id, job.server_round) == (1, 3)", "True").replace("fragile", "hanging")


def config(k: int) -> str:
    return f"partition-id={k} num-partitions=2"


@pytest.fixture
def pair(site: Site) -> Iterator[tuple[Running, Running]]:
    """Two nodes whose messages may take a limited time."""
    env = {"FEDSTRIDE_MESSAGE_SECONDS": str(LIMIT)}
    one, two = site.joined({"one": config(0), "two": config(1)}, env=env)
    nodes = one, two
    yield nodes
    stop(*nodes)
    for node in nodes:
        assert "warning: " not in node.log()  # neither Flower's own nor a second template was needed


def submitted(site: Site, *overrides: str) -> Path:
    done = site.deployment.fedstride("submit", "tls", *REAL, *overrides)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder_in(done.stdout)


def test_a_warm_and_a_cold_node_have_the_bits_of_a_run_in_process(
    site: Site, pair: tuple[Running, Running], tmp_path: Path
) -> None:
    """SCAFFOLD's clients keep arrays on the node's disk. The second node is Flower's own."""
    given = ("strategy=scaffold", "rounds=3")
    local = play(tmp_path, *REAL, *given, small=False)
    stop(pair[1])
    (cold,) = site.joined({"two": config(1)}, program=STOCK)
    mixed = submitted(site, *given, "name=mixed")
    stop(cold)
    assert weights(mixed) == weights(local.folder)
    assert table(mixed) == table(local.folder)


def test_a_client_that_crashes_or_hangs_costs_its_own_message_only(
    site: Site, pair: tuple[Running, Running], tmp_path: Path
) -> None:
    (tmp_path / "fragile.py").write_text(FRAGILE)
    parts = f"parts={tmp_path / 'fragile.py'}"
    folder = submitted(site, parts, "client=fragile", "rounds=4", "min_clients=1", "timeout=120", "name=fragile")
    rows = {(row["round"], row["client"]): row for row in load(folder).clients.rows}
    failed = {key: row["reason"] for key, row in rows.items() if row["status"] != "used"}
    assert set(failed) == {(2, 0), (3, 1)}
    assert all(str(Fault(ErrorKind.ENDED)) in reason for reason in failed.values())
    assert len(rows) == 8


def test_nothing_grows_over_many_messages(site: Site, pair: tuple[Running, Running]) -> None:
    """Processes and open files, of the SuperNode and of the process from which its executors are forked."""
    given = ("client.local_steps=1", "evaluate_every=18")
    submitted(site, *given, "rounds=2", "name=short")
    before = [settled(node) for node in pair]
    submitted(site, *given, "rounds=18", "name=long")
    after = [settled(node) for node in pair]
    most = 1 + FREE_SUPERVISORS
    assert all(processes <= most for processes, _ in after)  # the template, and supervisors that wait
    # A supervisor has five of its own, and its template two for it; a connection may be open for some time.
    assert all(late <= early + 4 + 7 for (_, late), (_, early) in zip(after, before, strict=True)), (before, after)


def settled(node: Running) -> tuple[int, int]:
    """The number of processes below a node once the last message's has ended, and of open files of all."""
    pid = node.process.pid
    until(lambda: None if of_messages(pid) else True, "end of the last process")
    family = [pid, *descendants(pid)]
    return len(family) - 1, sum(len(os.listdir(f"/proc/{each}/fd")) for each in family)


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
@pytest.mark.usefixtures("ctrl_c")
def test_the_end_of_a_node_ends_its_processes(site: Site, tmp_path: Path, how: signal.Signals) -> None:
    """Also one that is at work. The signal goes to the node alone, as from a process manager."""
    (tmp_path / "hanging.py").write_text(HANGING)
    (node,) = site.joined({"three": "partition-id=0 num-partitions=1"})
    overrides = [*REAL, f"parts={tmp_path / 'hanging.py'}", "client=hanging", "clients=1", "rounds=1"]
    command = ["python", "-m", "lab.cli.main", "submit", "tls", *overrides, f"name=end-{how.name}"]
    home = {"FLWR_HOME": site.desk.env["FLWR_HOME"]}
    submitting = site.deployment.start(f"submit-{how.name}", *command, env=home)
    family = until(lambda: at_work(node), "work of the node")
    node.process.send_signal(how)
    until(lambda: None if any(map(is_alive, family)) else True, "end of its processes")
    code = until(node.ended, "end of the node")
    assert code == (-9 if how == signal.SIGKILL else 0), node.log()
    submitting.process.kill()
    site.desk.stop_runs()


def at_work(node: Running) -> list[int] | None:
    """The processes below a node when an app works on a training message there; None before."""
    assert node.ended() is None, node.log()
    family = descendants(node.process.pid)
    works = "Receiving: train message" in node.log() and of_messages(node.process.pid)
    return family if works else None


NOBODY = 65534


@pytest.fixture
def hospital(site: Site) -> Iterator[Path]:
    """The folder of a site whose node is started as a user of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root can start a node as another user")
    try:
        subprocess.run(
            [sys.executable, "-c", "import node"], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/", check=True
        )
    except (PermissionError, subprocess.CalledProcessError):
        pytest.skip("another user cannot reach this environment")
    folder = Path(tempfile.mkdtemp(prefix="fedstride-hospital-"))
    shutil.copy(site.certificates / "one", folder / "key")
    shutil.copy(site.certificates / "ca.crt", folder / "ca.crt")
    (folder / "home").mkdir(mode=0o700)
    yield folder
    shutil.rmtree(folder)


def test_a_hospital_as_in_the_documentation(site: Site, hospital: Path, tmp_path: Path) -> None:
    """docs/deployment.md with all of it on: TLS, key, signed app, data file, policy; as a user of its own."""
    if support().landlock < 6:
        pytest.skip("the kernel of this machine has no Landlock 6")
    (tmp_path / "blood.py").write_text(BLOOD)
    subprocess.run([sys.executable, "-c", TABLES], cwd=tmp_path, check=True, timeout=60)
    shutil.copy(tmp_path / "hospital-0.csv", hospital / "patients.csv")
    policy = 'confine = "demanded"\nlandlock = 6\nmemory_gib = 8\nprocesses = 200\nsigned = true\n'
    own = own_data(hospital, Path("patients.csv"), DATA_FILE, policy)
    new_key(tmp_path / "study")
    shutil.copy(tmp_path / "study.yaml", hospital / "study.yaml")
    for each in (hospital, *hospital.iterdir()):
        os.chown(each, NOBODY, NOBODY)
    env = {"HOME": str(hospital)} | {
        name: str(hospital / folder)
        for name, folder in (
            ("FLWR_HOME", "home"),
            ("FEDSTRIDE_STATE", "home/state"),
            ("FEDSTRIDE_CACHE", "home/cache"),
        )
    }
    config = f"{own} partition-id=0"
    node = site.deployment.start(
        "hospital",
        *(sys.executable, "-m", "lab.cli.main", "node", "--superlink", site.link.fleet, "--node-config", config),
        *("--root-certificates", str(hospital / "ca.crt"), "--auth-supernode-private-key", str(hospital / "key")),
        *("--trusted-entities", str(hospital / "study.yaml"), "--wait"),
        env=env,
        user=NOBODY,
    )
    until(node.joined, "answer to the node")
    given = ["task=blood", "model=mlp", "rounds=2", "clients=1", "partition=own", "name=hospital"]
    parts = f"parts={tmp_path / 'blood.py'}"
    done = site.deployment.fedstride("submit", "tls", parts, *given, "--signing-key", str(tmp_path / "study"))
    assert done.returncode == 0, done.stdout + done.stderr + node.log()
    local = play(
        tmp_path / "local", parts, *given, f"partition.files=[{tmp_path / 'hospital-0.csv'}]", small=False
    )
    assert weights(folder_in(done.stdout)) == weights(local.folder)
    assert "apps are confined by the kernel\n" in node.log()
    status = site.deployment.fedstride("node-status", env={"FLWR_HOME": str(hospital / "home")})
    assert status.returncode == 0 and "apps are confined by the kernel" in status.stdout
    (count,) = (hospital / "home/node-rows").glob("*/count.json")
    rows = json.loads(count.read_text())["rows"]
    assert rows == len((hospital / "patients.csv").read_text().splitlines()) - 1
    stop(node)


def test_named_nodes_keep_a_log_and_do_nothing_without_it(site: Site, join: Join, tmp_path: Path) -> None:
    """A third node is connected, and is not chosen."""
    site.forget()
    keys = ("one", "two", "three")
    nodes = join({key: f'{config(k % 2)} name="{key}"' for k, key in enumerate(keys)})
    folder = submitted(site, "rounds=2", "strategy=fedalr", "nodes=one,tw?", "name=named")
    local = play(tmp_path, *REAL, "rounds=2", "strategy=fedalr", small=False)
    assert weights(folder) == weights(local.folder)
    assert {row["client"] for row in load(folder).clients.rows} == {"one", "two"}
    assert load(folder).rows[1]["fedalr/client"] == ["one", "two"]

    logs = {node.name: node.folder / "home/node-log.jsonl" for node in nodes}
    rows = {name: read(log).rows for name, log in logs.items()}
    assert all(found[0]["event"] == "started" for found in rows.values())
    # A node whose key was still in use after an earlier test has been started again.
    events = {
        name: [(row["event"], row["task"]) for row in found if row["event"] != "started"]
        for name, found in rows.items()
    }
    message = [("received", "query"), ("answered", "query"), *2 * [("received", "train"), ("answered", "train")]]
    assert events == {"one": message, "two": message, "three": []}
    answer = read(logs["one"]).rows[-1]
    assert answer | {"strategy": "fedalr", "privacy": "none", "round": 2, "task": "train"} == answer
    assert answer["bytes_out"] > (folder / "model.safetensors").stat().st_size * 0.9
    assert answer["examples"] == load(folder).clients.rows[0]["num-examples"]
    shown = site.deployment.fedstride("node-log", str(logs["one"]), "--key", str(site.certificates / "one.pub"))
    assert shown.returncode == 0, shown.stdout + shown.stderr
    assert f"has written lines 1 to {len(rows['one'])} in this order" in shown.stdout

    missing = site.deployment.fedstride("submit", "tls", *REAL, "nodes=one,four", "node_wait=1")
    assert missing.returncode == 1
    assert "four is missing; connected: " in missing.stderr
    logs["two"].rename(logs["two"].with_name("moved"))
    logs["two"].mkdir()  # a file that nobody can write, root included
    refused = site.deployment.fedstride("submit", "tls", *REAL, "rounds=1", "nodes=one,two")
    assert refused.returncode == 1
    assert f"two cannot take part: {Fault(ErrorKind.LOG)}" in refused.stderr


def test_a_node_runs_only_apps_that_a_trusted_key_has_signed(
    site: Site, join: Join, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unsigned, signed by a stranger, altered: the reason is in the node's log; then the same app, signed."""
    monkeypatch.setenv("FLWR_HOME", site.desk.env["FLWR_HOME"])
    for name in ("study", "stranger"):
        new_key(tmp_path / name)
    made = site.deployment.fedstride("sign", "app", str(tmp_path / "study"), str(tmp_path / "study.sig"))
    assert made.returncode == 0, made.stderr
    real = json.loads((tmp_path / "study.sig").read_text())
    other = sign(b"another app", tmp_path / "study")  # with the hash of this app, as an attacker would write it
    altered = real | {"signature": other.signature, "signed_at": other.signed_at}
    (tmp_path / "altered.sig").write_text(json.dumps(altered))

    site.forget()
    nodes = join({"one": config(0), "two": config(1)}, "--trusted-entities", str(tmp_path / "study.yaml"))
    given = [*REAL, "rounds=1", "node_wait=60"]
    for signed in (
        None,
        signature_of(None, tmp_path / "stranger"),
        signature_of(tmp_path / "altered.sig", None),
    ):
        run = submission.submit(named("tls"), given, signed)
        refused = submission.follow(named("tls"), run, lambda line: None)
        assert not refused.completed
        assert f"cannot take part: {Fault(ErrorKind.UNTRUSTED)}" in refused.reason, refused
    for node in nodes:  # nothing of the app was unpacked, or run
        assert not (node.folder / "home/apps").exists()
    done = site.deployment.fedstride("submit", "tls", *given, "--signature", str(tmp_path / "study.sig"))
    assert done.returncode == 0, done.stdout + done.stderr + nodes[0].log()
    log = read(nodes[0].folder / "home/node-log.jsonl").rows
    reasons = [row for row in log if row["event"] == "refused"]
    said = ("is not signed, and this node runs signed apps only", "a key that this node does not", "was altered")
    assert all(text in row["reason"] for text, row in zip(said, reasons, strict=True))
    assert all("code 901" in row["reason"] and row["bytes_out"] < 2000 for row in reasons)
    assert log[-1]["event"] == "answered" and log[-1]["app_hash"] == real["app"]
