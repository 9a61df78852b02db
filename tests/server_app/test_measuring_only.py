"""A run of zero rounds: all clients measure a model, and nothing is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from desk import play, weights
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from safetensors.numpy import load as load_arrays

from client_app import app as clients
from fedstride.errors import ConfigError
from lab.results.run_folders import load
from server_app import preparation
from server_app.config.compose import compose

MEASURED = ("evaluate_clients=true", "holdout=0.25", "clients=4", "task.metrics=[accuracy,auroc,f1]")


def figures(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key.startswith(("local/", "test/"))}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return play(tmp_path_factory.mktemp("trained"), *MEASURED, "rounds=2", "strategy=scaffold").folder


def measuring(trained: Path, *more: str) -> list[str]:
    return [*MEASURED, "rounds=0", f"initial='{trained / 'model.safetensors'}'", *more]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["fedavg", "scaffold", "fednnnn+fedlws", "fedadam", "krum"])
@pytest.mark.parametrize("workers", [0, 2])
def test_the_figures_are_those_of_the_last_round(
    trained: Path, strategy: str, workers: int, tmp_path: Path
) -> None:
    outcome = play(tmp_path, *measuring(trained, f"strategy={strategy}"), workers=workers)
    before, found = load(trained), load(outcome.folder)
    assert figures(found.rows[0]) == figures(before.rows[-1])
    last = [figures(row) for row in before.clients.rows if row["round"] == 2]
    assert [figures(row) for row in found.clients.rows] == last
    assert [row["status"] for row in found.clients.rows] == ["used"] * 4
    assert (found.state, len(found.rows), found.rows[0]["clients"]) == ("completed", 1, 4)
    same, own = (load_arrays(weights(folder)) for folder in (trained, outcome.folder))
    assert {name: array.tobytes() for name, array in own.items()} == {n: a.tobytes() for n, a in same.items()}


@pytest.mark.slow
def test_a_fraction_of_the_clients_trains_but_all_measure(trained: Path, tmp_path: Path) -> None:
    found = load(play(tmp_path, *measuring(trained, "cohort=2")).folder)
    assert len(found.clients.rows) == 4


@pytest.mark.slow
def test_nobody_is_asked_to_train(trained: Path, tmp_path: Path) -> None:
    asked = []

    def app(message: Message, context: Context) -> Message:
        asked.append(message.metadata.message_type)
        return clients.app(message, context)

    recording: Any = app
    play(tmp_path, *measuring(trained), app=recording)
    assert sorted(asked) == ["evaluate"] * 4 + ["query"] * 4


@pytest.mark.slow
def test_a_client_that_fails_is_said(trained: Path, tmp_path: Path) -> None:
    failing = ClientApp()

    @failing.evaluate()
    def evaluate(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 2:
            raise RuntimeError("no")
        return clients.app(message, context)

    @failing.query()
    def query(message: Message, context: Context) -> Message:
        return clients.app(message, context)

    found = load(play(tmp_path, *measuring(trained), app=failing).folder)
    assert [row["status"] for row in found.clients.rows] == ["used", "used", "rejected", "used"]
    assert found.rows[0]["clients"] == 3


def test_the_server_measures_alone_where_clients_do_not(trained: Path, tmp_path: Path) -> None:
    alone = ["rounds=0", f"initial='{trained / 'model.safetensors'}'", "clients=4", "evaluate_clients=false"]
    found = load(play(tmp_path, *alone).folder)
    assert found.rows[0]["test/accuracy"] == load(trained).rows[-1]["test/accuracy"]
    assert found.clients.rows == []


def test_there_must_be_a_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rounds = 0 is not allowed: .* initial=FILE"):
        preparation.prepare(compose(["rounds=0"]))
    with pytest.raises(ConfigError, match="rounds"):
        compose(["rounds=-1"])
