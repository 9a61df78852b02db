"""Privacy by configuration with each of the five methods: whole runs, from the configuration to the folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from desk import StopAfter, play, resume, table, weights
from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from safetensors.numpy import load_file

from client_app.app import app as client
from fedstride.errors import CheckpointError, ConfigError
from fedstride.noise import gaussian_mechanism
from lab.engine.local_grid import LocalGrid
from server_app import app, preparation
from server_app.build import build_strategy, client_config
from server_app.config.compose import compose
from server_app.records.checkpoint import newest_checkpoint
from server_app.records.line_files import read_lines
from server_app.records.noise_releases import Released

METHODS = [
    "strategy=fedavg client=fednlr",
    "strategy=fedavg+two_d_lrd strategy.local_steps=3",
    "strategy=fedalr",
    "strategy=fedavg+fedlws",
    "strategy=fednnnn",
]
GENTLE = ("privacy.clipping_norm=0.5", "privacy.noise_multiplier=0.01", "privacy.noise_seed=7", "rounds=2")


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_every_method_with_every_kind(tmp_path: Path, method: str) -> None:
    models = {}
    for kind in ("none", "server_side", "client_side", "local"):
        given = [] if kind == "none" else GENTLE
        done = play(tmp_path, *method.split(), f"privacy={kind}", *given, f"name={kind}", "rounds=2")
        models[kind] = weights(done.folder)
        last = done.rows[-1]
        assert ("privacy/epsilon" in last) == (kind != "none")
        assert ("train/loss" in last) == (kind != "local")
        assert last["clients"] == 4
    assert len(set(models.values())) == 4


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_without_noise_it_does_not_matter_who_clips(tmp_path: Path, method: str) -> None:
    kept = []
    for kind in ("server_side", "client_side"):
        given = [f"privacy={kind}", "privacy.clipping_norm=0.5", "privacy.noise_multiplier=0", "rounds=2"]
        kept.append(load_file(play(tmp_path, *method.split(), *given).folder / "model.safetensors"))
    for name, array in kept[0].items():  # a client's clipped model is rounded before it travels
        np.testing.assert_allclose(kept[1][name], array, atol=1e-5)


@pytest.mark.slow
def test_with_local_noise_clients_report_no_metrics_of_their_data(tmp_path: Path) -> None:
    folder = play(tmp_path, "strategy=fedavg", "privacy=local", *GENTLE).folder
    for row in read_lines(folder / "clients.jsonl"):
        assert row["num-examples"] == 1
        assert not {"train/loss", "train/accuracy", "train/steps", "seconds/train"} & set(row)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["server_side", "client_side privacy.adaptive=true"])
def test_a_resumed_run_draws_the_noise_that_it_would_have_drawn(tmp_path: Path, kind: str) -> None:
    """The secret is in the checkpoint; two continuations of it end with the same bits."""
    given = ["strategy=fednnnn", *f"privacy={kind}".split(), "privacy.noise_multiplier=0.05", "rounds=4"]
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, *given, "name=one", observers=[StopAfter(2)])
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    for name in ("one", "two"):
        resume(tmp_path / name)
    assert weights(tmp_path / "one") == weights(tmp_path / "two")
    assert table(tmp_path / "one") == table(tmp_path / "two")
    epsilons = [row["privacy/epsilon"] for row in read_lines(tmp_path / "one/metrics.jsonl")[1:]]
    assert epsilons == [gaussian_mechanism.epsilon(0.05, t, 1e-5) for t in (1, 2, 3, 4)]
    secret = newest_checkpoint(tmp_path / "one")[0].strategy["inner/secret"]
    assert secret not in (tmp_path / "one/config.yaml").read_text()
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "one/checkpoint").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_a_round_repeated_with_other_inputs_is_one_more_release(tmp_path: Path) -> None:
    """A round with the same inputs is none: epsilon then counts each round once."""
    given = ["strategy=fedavg", "privacy=server_side", "rounds=4", "name=one"]
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, *given, observers=[StopAfter(3)])
    folder = tmp_path / "one"
    shutil.rmtree(folder / "checkpoint/round-000003")  # as if the machine had failed before it was written
    shutil.copytree(folder, tmp_path / "two")
    same = resume(folder)
    assert same.rows[-1]["privacy/epsilon"] == gaussian_mechanism.epsilon(1.0, 4, 1e-5)
    releases = json.loads((folder / "checkpoint/releases.json").read_text())
    assert [number for number, _ in releases] == [1, 2, 3, 4]
    failing = ClientApp()

    @failing.query()
    @failing.evaluate()
    def pass_on(message: Message, context: Context) -> Message:
        return client(message, context)

    @failing.train()
    def train(message: Message, context: Context) -> Message:
        if context.node_config["partition-id"] == 2:
            raise RuntimeError("this client has no data any more")
        return client(message, context)

    other = resume(tmp_path / "two", app=failing)
    assert other.rows[-1]["privacy/epsilon"] == gaussian_mechanism.epsilon(1.0, 5, 1e-5)
    assert other.rows[2]["privacy/epsilon"] == gaussian_mechanism.epsilon(1.0, 2, 1e-5)
    assert other.rows[3]["privacy/epsilon"] == gaussian_mechanism.epsilon(1.0, 4, 1e-5)


def test_what_is_counted(tmp_path: Path) -> None:
    released = Released(tmp_path / "checkpoint/releases.json")
    assert [released(number, f"{number}") for number in (1, 2, 3, 4)] == [1, 2, 3, 4]
    assert [released(number, f"{number}") for number in (2, 3)] == [2, 3]  # made again, with the same bits
    assert released(3, "other") == 5  # the fourth round will not come out as it did
    assert [released(4, "other"), released(5, "5")] == [6, 7]


@pytest.mark.slow
def test_a_lost_list_of_releases_does_not_lower_the_count(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, "privacy=server_side", "rounds=4", "name=one", observers=[StopAfter(2)])
    (tmp_path / "one/checkpoint/releases.json").unlink()
    assert resume(tmp_path / "one").rows[-1]["privacy/epsilon"] == gaussian_mechanism.epsilon(1.0, 4, 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("content", ["", "[[1]]", "{}x", "[1, 2]", '[["a", "b"]]', "{}"])
def test_a_damaged_list_of_releases_ends_the_run(tmp_path: Path, content: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        play(tmp_path, "privacy=server_side", "rounds=3", "name=one", observers=[StopAfter(1)])
    (tmp_path / "one/checkpoint/releases.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"releases\.json is damaged: without it"):
        resume(tmp_path / "one")


@pytest.mark.slow
def test_a_clients_releases_are_in_its_row(tmp_path: Path) -> None:
    folder = play(tmp_path, "strategy=fedavg", "privacy=local", "rounds=2").folder
    rows = read_lines(folder / "clients.jsonl")
    assert [row["privacy/releases"] for row in rows if row["round"]] == [1] * 4 + [2] * 4
    assert len(list((folder / "clients").rglob("releases.json"))) == 4


def test_a_deployment_refuses_a_seed_for_noise() -> None:
    config = compose(["privacy=server_side", "privacy.noise_seed=5"])
    with pytest.raises(ConfigError, match=r"privacy\.noise_seed = 5 is not allowed: .* null in a deployment"):
        app._check_no_seed(config)
    app._check_no_seed(compose(["privacy=server_side"]))
    app._check_no_seed(compose([]))


@pytest.mark.slow
def test_without_a_seed_no_two_runs_are_alike(tmp_path: Path) -> None:
    given = ["strategy=fedavg", "privacy=server_side", "rounds=1"]
    assert weights(play(tmp_path, *given).folder) != weights(play(tmp_path, *given).folder)


def test_the_servers_noise_seed_is_not_sent_to_clients() -> None:
    config = compose(["privacy=server_side", "privacy.noise_seed=99"])
    prepared = preparation.prepare(config)
    assert 99 not in client_config(config, prepared.spec).values()
    initial, sent = prepared.evaluation.initial, client_config(prepared.config, prepared.spec)
    messages = list(build_strategy(config).configure_train(1, initial, sent, LocalGrid(ClientApp(), 4)))
    assert len(messages) == 4
    assert all(99 not in message.content.config_records["config"].values() for message in messages)


def test_the_count_gets_a_twentieth_of_the_clients_as_noise() -> None:
    given = ["privacy=server_side", "privacy.adaptive=true", "privacy.noise_multiplier=0.5", "clients=30"]
    assert build_strategy(compose(given)).strategy.clipped_count_stddev == 1.5  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["privacy=server_side", "privacy.clipping_norm=0"], "privacy.clipping_norm = 0.0"),
        (["privacy=local", "evaluate_clients=true"], "evaluate_clients = True"),
        (["privacy=local", "privacy.adaptive=true"], "privacy.adaptive"),
        (["privacy=server_side", "best=train/loss"], "best = 'train/loss'"),
        (["privacy=servers_side"], "server_side"),
        (["privacy=server_side", "screening.clip=0.5"], "screening.clip = 0.5 is not allowed"),
        (["privacy=client_side", "screening.clip=1"], "screening.clip = 1.0 is not allowed"),
        (["privacy=client_side", "screening.burst=30"], "screening.burst = 30.0 is not allowed"),
        (["privacy=server_side", "privacy.adaptive=true", "clients=10"], "privacy.clipped_count_stddev = 0.5"),
    ],
)
def test_invalid_privacy_settings_are_rejected(given: list[str], said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace(".", r"\.")):
        build_strategy(compose(given))
