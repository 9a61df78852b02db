"""Runs on a Ray cluster of several nodes, on this machine: the same bits, and a node that dies costs its tasks."""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from desk import SMALL, play, table, weights
from folders import Call

from fedstride.errors import RunError
from lab.engine import ray_cluster
from lab.engine.engine import engine
from lab.engine.ray_jobs import run_jobs
from lab.engine.ray_machines import Machines
from lab.engine.ray_pool import RayPool
from lab.engine.sweep_combinations import plan
from server_app import preparation, session
from server_app.config.compose import compose

NODE = {"num_cpus": 1, "object_store_memory": 100_000_000}


@pytest.mark.slow
def test_without_a_cluster_there_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    expected = pytest.raises(
        RunError, match=r"no Ray cluster that can be used at 127\.0\.0\.1:1: .*ray start --head"
    )
    with expected, ray_cluster.connected():
        pass


class Server(NamedTuple):
    """What answers at a port, and what is said of it."""

    answer: bytes
    said: str


SERVERS = {
    "of Redis": Server(b"-ERR unknown command 'PRI'\r\n", "what answers there is not Ray"),
    "of mail": Server(b"220 mail.example ESMTP\r\n", "what answers there is not Ray"),
    "that closes": Server(b"", "what answers there is not Ray"),
    "with three bytes": Server(b"\x00\x00\x04", "what answers there is not Ray"),
}


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["", "ray://"])
@pytest.mark.parametrize("name", SERVERS)
def test_another_server_is_not_taken_for_ray(monkeypatch: pytest.MonkeyPatch, name: str, scheme: str) -> None:
    """Redis has the port that Ray has by default. Ray itself would try for minutes."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(SERVERS[name].answer)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1000)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        monkeypatch.setenv("RAY_ADDRESS", f"{scheme}127.0.0.1:{listener.getsockname()[1]}")
        monkeypatch.setenv("RAY_AUTH_MODE", "token")
        with pytest.raises(RunError, match=SERVERS[name].said), ray_cluster.connected():
            pass
        thread.join()


def test_a_server_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    monkeypatch.setattr(ray_cluster, "REACH_SECONDS", 0.2)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{listener.getsockname()[1]}")
        with pytest.raises(RunError, match=r"no Ray cluster .*timed out"), ray_cluster.connected():
            pass


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("", "at this machine: "),
        ("local", "RAY_ADDRESS=local names none"),
        ("ray://no-such-host.invalid", "at ray://no-such-host.invalid: gaierror"),
        ("ray://127.0.0.1:1", "Connection refused"),
        ("127.0.0.1", "Invalid address format"),
        ("head node", "Invalid address format"),
    ],
)
def test_an_address_without_a_cluster(monkeypatch: pytest.MonkeyPatch, address: str, said: str) -> None:
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(RunError, match=said) as caught, ray_cluster.connected():
        pass
    assert "ray start --head" in str(caught.value)


def test_other_versions_and_folders_are_named() -> None:
    demands = ray_cluster.Demands(os.getcwd())
    here = ray_cluster.facts(demands)._replace(closed=True)
    assert ray_cluster.unusable(here, demands) is None
    other = here._replace(host="b7", versions={**here.versions, "torch": "1.0"})
    assert "b7 has torch 1.0, but this machine" in str(ray_cluster.unusable(other, demands))
    blind = here._replace(host="b7", sees=False)
    demands = ray_cluster.Demands("/x")
    assert ray_cluster.unusable(blind, demands) == "b7 does not see /x, which all machines must share"
    is_open = here._replace(host="b7", closed=False)
    assert "the Ray of b7 was started without a token; " in str(ray_cluster.unusable(is_open, demands))
    assert ray_cluster.unusable(is_open, demands._replace(closed=False)) is None


@pytest.mark.slow
def test_a_cluster_without_a_token_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A sweep is refused, and a run trains here, as without a cluster."""
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    monkeypatch.delenv("RAY_AUTH_MODE", raising=False)
    jobs = plan([*SMALL, "rounds=2", "seed=1,2", f"out='{tmp_path / 'sweep'}'"]).jobs
    with pytest.raises(RunError, match=r"everybody who reaches .*allow=\[ray_without_token\]"):
        next(run_jobs(jobs, at_once=None, on_start=print))
    with engine(None, preparation.prepare(compose([*SMALL, "engine=ray", "workers=1"]))) as made:  # type: ignore[arg-type]
        assert any("RAY_AUTH_MODE=token" in note and "train on this machine" in note for note in made.notes)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    if find_spec("ray") is None:
        pytest.skip("Ray is not installed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_AUTH_MODE", "token")
        patch.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))
        yield from started()


def started() -> Iterator[Any]:
    ray_cluster.imported()
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args=NODE)
    before = os.environ.get("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = found.address
    yield found
    if before is None:
        del os.environ["RAY_ADDRESS"]
    else:
        os.environ["RAY_ADDRESS"] = before
    found.shutdown()


@pytest.fixture
def second(cluster: Any) -> Iterator[Any]:
    """A second node, for one test."""
    node = cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    yield node
    if node in cluster.list_all_nodes():
        cluster.remove_node(node)


@pytest.mark.slow
@pytest.mark.usefixtures("second")
def test_a_run_has_the_bits_of_one_machine(tmp_path: Path) -> None:
    overrides = ("strategy=scaffold", "client.lr=0.02", "rounds=2")
    here = play(tmp_path, *overrides, "name=here").folder
    there = play(tmp_path, *overrides, "name=there", "engine=ray").folder
    assert weights(there) == weights(here)
    assert table(there) == table(here)
    assert list((there / "clients").iterdir())


@pytest.mark.slow
@pytest.mark.usefixtures("second")
def test_the_runs_of_a_sweep_have_the_bits_of_one_machine(tmp_path: Path) -> None:
    jobs = plan([*SMALL, "rounds=2", "seed=1,2,3", f"out='{tmp_path / 'sweep'}'"]).jobs
    begun: list[Any] = []
    ended = list(run_jobs(jobs, at_once=None, on_start=begun.append))
    assert begun == jobs
    assert [each.reason for each in ended if each.state != "completed"] == []
    assert {each.job for each in ended} == set(jobs)
    for seed, job in enumerate(jobs, start=1):
        here = play(tmp_path, "rounds=2", f"seed={seed}", f"name=here{seed}").folder
        assert weights(job.folder) == weights(here)


@pytest.mark.slow
def test_a_sweep_does_not_use_a_machine_with_another_version(
    cluster: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its runs would fail at once, and it would be free for the next one."""
    other = tmp_path / "there/torch-0.1.dist-info"
    other.mkdir(parents=True)
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 0.1\n")
    node = cluster.add_node(**NODE, env_vars={"PYTHONPATH": str(other.parent)})
    cluster.wait_for_nodes()
    try:
        jobs = plan([*SMALL, "rounds=1", "seed=1,2,3", f"out='{tmp_path / 'sweep'}'"]).jobs
        ended = list(run_jobs(jobs, at_once=None, on_start=lambda job: None))
    finally:
        cluster.remove_node(node)
    assert [(each.state, each.reason) for each in ended] == [("completed", "")] * 3
    assert (
        f"a machine of the Ray cluster is not used: {socket.gethostname()} has torch 0.1, but this" in caplog.text
    )


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_sweep_of_which_no_machine_sees_the_folder(tmp_path: Path) -> None:
    with ray_cluster.connected() as ray, pytest.raises(RunError, match=r"can be used: .* does not see .*nowhere"):
        Machines(ray, ray_cluster.Demands(str(tmp_path / "nowhere")), {"cpus": 1.0, "gpus": 0.0})


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_the_command_runs_a_sweep_on_the_cluster(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("run", "-m", "--on", "ray", *SMALL, "rounds=1", "seed=1,2", f"out={tmp_path / 'sweep'}")
    assert code == 0
    assert "2 runs, on the Ray cluster, in " in out and "[2/2] completed" in out


def test_where_one_run_runs_is_a_setting(call: Call) -> None:
    code, _, err = call("run", "--on", "ray", "rounds=1")
    assert code == 2 and "use engine=ray" in err


@pytest.mark.slow
def test_a_node_that_dies_costs_its_tasks_only(cluster: Any, second: Any, tmp_path: Path) -> None:
    from client_app.app import app

    class Removal:
        """Removes the second node in round 2."""

        def replied(self, server_round: int, done: int, total: int) -> None:
            if (server_round, done) == (2, 1):
                cluster.remove_node(second, allow_graceful=False)

        def round_done(self, done: Any) -> None: ...

    prepared = preparation.prepare(compose([*SMALL, "rounds=4", "engine=ray", "workers=2", f"out='{tmp_path}'"]))
    with engine(app, prepared) as desk:
        assert desk.workers == 2
        outcome = session.run(desk.grid(prepared), prepared, evaluate=desk.evaluate(), observers=[Removal()])
    used = [row["clients"] for row in outcome.rows[1:]]
    assert used[0] == used[-1] == 4
    assert sum(used) >= 15  # it had at most one client, of round 2 or, if its end is noticed late, of round 3


def doubling() -> Any:
    """What a worker does. Not a function of this module, which the processes of the cluster cannot import."""

    def make() -> Any:
        return lambda job: job * 2

    return make


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_a_worker_that_cannot_start_is_named(tmp_path: Path) -> None:
    def fails() -> Any:
        raise ValueError("cannot read the data")

    with ray_cluster.connected() as ray, pytest.raises(RunError, match="ValueError: cannot read the data"):
        RayPool(ray, fails, 1, ray_cluster.Demands(str(tmp_path)))


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_machines_that_do_not_see_the_folder_are_named(tmp_path: Path) -> None:
    with ray_cluster.connected() as ray, pytest.raises(RunError, match="does not see"):
        RayPool(ray, doubling(), 1, ray_cluster.Demands(str(tmp_path / "nowhere")))


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
def test_errors_and_results_arrive(tmp_path: Path) -> None:
    with ray_cluster.connected() as ray, RayPool(ray, doubling(), 1, ray_cluster.Demands(str(tmp_path))) as pool:
        packer = pool.packer()
        jobs = [pool.submit(packer.pack(number)) for number in range(5)]
        assert [job.result(60) for job in jobs] == [0, 2, 4, 6, 8]
        with pytest.raises(TypeError):
            pool.submit(packer.pack({})).result(60)
        assert pool.submit(packer.pack("a")).result(60) == "aa"
