"""Nodes with their own data: training examples, client id, errors, and whole runs of such nodes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client_talk import CLIENTS, IID, TASK, round_config, same, sgd, train
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp

from client_app import from_message, message_settings
from client_app.app import app as real_client
from fedstride.errors import ConfigError, DataError, RunError
from fedstride.messages import wire
from fedstride.tasks import data
from fedstride.tasks.partitions import schemes
from fedstride.tasks.partitions.divisible_examples import Divisible
from fedstride.tasks.registry import PARTITIONS
from lab.engine.local_grid import LocalGrid
from server_app import preparation, session
from server_app.config.compose import compose

OWN = PARTITIONS.config("own")()
NODE_ID = 2**63 + 5  # a SuperLink draws node ids of 64 bits


def node(**config: Any) -> Context:
    written = {key.replace("_", "-"): value for key, value in config.items()} | {wire.DESK: True}
    return Context(run_id=1, node_id=NODE_ID, node_config=written, state=RecordDict(), run_config={})


def own(**more: Any) -> Mapping[str, Any]:
    return round_config(partition=OWN, **more)


def part_of_the_task(path: Path, k: int, clients: int = CLIENTS) -> Path:
    """An .npz file with the examples of client k of an iid partition."""
    source = data.load(TASK)
    mine = schemes.partition(IID, source.divisible, clients, 1)[k]
    np.savez(path, x=source.train_x[mine], y=source.train_y[mine])
    return path


# ---------------------------------------------------------------- one client


def test_a_secret_of_the_site_decides_the_order_of_its_examples(tmp_path: Path) -> None:
    """By all settings together: no two runs of other settings begin with the same examples."""
    part_of_the_task(tmp_path / "mine.npz", 7)
    about = 'path = "mine.npz"\n[examples]\nkind = "image"\nshape = [1, 28, 28]\nclasses = 10\n'
    (tmp_path / "own.toml").write_text(about)
    (tmp_path / "desk.toml").write_text("split_seed = 0\n" + about)

    def seed(file: str, **more: Any) -> int:
        return from_message.read(own(**more), node(data=str(tmp_path / file), partition_id=7)).seed

    alike = {seed("own.toml", **{wire.RUN: word, wire.SERVER_ROUND: n}) for n, word in ((1, "a"), (2, "b"))}
    other = {seed("own.toml", client=sgd(batch_size=size)) for size in (20, 21)}
    assert len(alike) == 1 and len(alike | other) == 3
    assert seed("desk.toml") == round_config()[wire.SEED] not in alike | other


def test_training_on_own_data_equals_training_on_the_same_part_of_the_task(tmp_path: Path) -> None:
    path = part_of_the_task(tmp_path / "mine.npz", 7)
    brought, metrics = train(own(), context=node(data=str(path), partition_id=7))
    drawn, drawn_metrics = train(round_config(), context=node(partition_id=7, num_partitions=CLIENTS))
    assert same(brought, drawn)
    assert metrics[wire.CLIENT_ID] == 7
    assert metrics[wire.NUM_EXAMPLES] == drawn_metrics[wire.NUM_EXAMPLES] == 100
    assert metrics[wire.TRAIN_LOSS] == drawn_metrics[wire.TRAIN_LOSS]


def test_own_data_take_precedence_over_a_drawn_partition(tmp_path: Path) -> None:
    """A node whose node-config has data never uses the task's data, with any partition of the run."""
    path = part_of_the_task(tmp_path / "mine.npz", 7)
    job = from_message.read(round_config(), node(data=str(path), partition_id=3))
    assert job.client_id == 3
    seven = message_settings.members(TASK, IID, CLIENTS, 1)[7]
    np.testing.assert_array_equal(job.examples.y, data.load(TASK).train_y[seven])


def test_without_a_partition_id_the_client_id_is_the_node_id(tmp_path: Path) -> None:
    _, metrics = train(own(), context=node(data=str(part_of_the_task(tmp_path / "mine.npz", 0))))
    assert metrics[wire.CLIENT_ID] == NODE_ID


def test_a_partition_id_out_of_range_is_named_here_too(tmp_path: Path) -> None:
    path = part_of_the_task(tmp_path / "mine.npz", 0)
    with pytest.raises(ConfigError, match=f"partition-id = {CLIENTS} is not allowed"):
        from_message.read(own(), node(data=str(path), partition_id=CLIENTS))


@pytest.mark.parametrize("wrong", [None, "", 7, True])
def test_the_error_for_a_node_without_data_says_how_to_give_the_path(wrong: object) -> None:
    config = {} if wrong is None else {"data": wrong}
    with pytest.raises(ConfigError) as caught:
        from_message.read(own(), node(partition_id=0, **config))
    text = str(caught.value)
    assert f"node-config data = {wrong!r}" in text
    assert "--node-config 'data=\"/path/of/its/data\"'" in text
    assert "\n" not in text


def test_data_that_do_not_fit_the_task_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, images=np.zeros((3, 32, 32), np.uint8), labels=np.zeros(3, int))
    with pytest.raises(DataError, match=r"mine.npz: images has shape \(3, 32, 32\), but this task needs"):
        train(own(), context=node(data=str(path)))


# ---------------------------------------------------------------- whole runs


def brings(configs: list[dict[str, Any]]) -> ClientApp:
    """The real client on nodes with these node-configs, in the order of their ids."""
    app = ClientApp()

    def on_its_node(message: Message, context: Context) -> Message:
        context.node_config = configs[context.node_id - 2]  # the Grid numbers its nodes from 2
        return real_client(message, context)

    app.query()(on_its_node)
    app.train()(on_its_node)
    return app


def play(out: Path, configs: list[dict[str, Any]], *overrides: str) -> session.Outcome:
    small = ["model=mlp", "client.device=cpu", "client.local_steps=3", "rounds=2", f"clients={len(configs)}"]
    if "two_d_lrd" in str(overrides):  # 2D-LRD sets the number of mini-batches itself
        small.remove("client.local_steps=3")
    config = compose([*small, f"out='{out}'", *overrides])
    return session.run(LocalGrid(brings(configs), config.clients), preparation.prepare(config))


@pytest.mark.slow
def test_a_run_with_own_data_is_bit_identical_to_a_run_with_the_same_partition(tmp_path: Path) -> None:
    files = [part_of_the_task(tmp_path / f"{k}.npz", k, 3) for k in range(3)]
    configs = [{"data": str(path), "partition-id": k} for k, path in enumerate(files)]
    brought = play(tmp_path / "own", configs, "partition=own")
    drawn = play(tmp_path / "iid", [{"partition-id": k} for k in range(3)], "partition=iid", "holdout=0.2")
    assert [(r["client"], r["num-examples"]) for r in _clients(brought)] == [
        (r["client"], r["num-examples"]) for r in _clients(drawn)
    ]
    same_bits = (path.folder / "model.safetensors" for path in (brought, drawn))
    assert len({path.read_bytes() for path in same_bits}) == 1


def _clients(outcome: session.Outcome) -> list[dict[str, Any]]:
    from lab.results.run_folders import load

    return load(outcome.folder).clients.rows


@pytest.mark.slow
def test_nodes_without_a_partition_id_use_their_node_id(tmp_path: Path) -> None:
    files = [part_of_the_task(tmp_path / f"{k}.npz", k, 3) for k in range(3)]
    outcome = play(tmp_path / "own", [{"data": str(path)} for path in files], "partition=own")
    assert {row["client"] for row in _clients(outcome)} == {2, 3, 4}
    assert outcome.rows[-1]["screening/rejected"] == 0


def test_one_node_without_data_ends_the_run_before_it_trains(tmp_path: Path) -> None:
    path = part_of_the_task(tmp_path / "0.npz", 0, 2)
    configs = [{"data": str(path), "partition-id": 0}, {"partition-id": 1}]
    with pytest.raises(
        RunError,
        match=r"node 3 cannot take part: a setting of the message cannot be used at",
    ):
        play(tmp_path / "own", configs, "partition=own")


def test_no_partition_is_drawn_for_nodes_with_their_own_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemes, "partition", lambda *_: pytest.fail("drawn"))
    preparation.prepare(compose(["partition=own", "clients=100000", "client.device=cpu", f"out='{tmp_path}'"]))


def test_the_partition_own_cannot_be_drawn() -> None:
    with pytest.raises(DataError, match=r"partition = 'own' does not divide the task's data: .*--node-config"):
        schemes.partition(OWN, Divisible(10), 2, 1)


@pytest.mark.slow
def test_every_rule_works_on_own_data(tmp_path: Path) -> None:
    files = [part_of_the_task(tmp_path / f"{k}.npz", k, 2) for k in range(2)]
    configs = [{"data": str(path), "partition-id": k} for k, path in enumerate(files)]
    rule = ["strategy=fednnnn+fedlws+two_d_lrd", "client=fednlr", "objective=fedprox"]
    assert play(tmp_path / "own", configs, "partition=own", *rule).rows[-1]["round"] == 2
