"""Runs that train only a part of the model: what is sent, what stays, and how the rest reaches clients."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from desk import play, table, weights, whole_and_resumed
from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from safetensors.numpy import load_file
from torch import nn

from client_app import from_message, message_settings
from client_app.app import app as real_client
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.parts import Part
from fedstride.tasks.inputs import Inputs
from fedstride.tasks.models import frozen_cache
from fedstride.tasks.registry import MODELS
from server_app import preparation
from server_app.config.compose import compose
from server_app.records.line_files import read_lines

HEAD = "train=['fc2.*']"
SENT = {"fc2.weight", "fc2.bias"}

RULES = ["strategy=fednnnn", "strategy=scaffold", "strategy=fedadam", "strategy=fedavg client=fednlr"]

MORE_RULES = [
    "strategy=fedavg",
    "strategy=norm_norm",
    "strategy=momentum",
    "strategy=fedalr",
    "strategy=feddyn",
    "strategy=fedavgm",
    "strategy=fedmedian",
    "strategy=krum strategy.num_malicious_nodes=0",
    "strategy=fednnnn+fedlws+two_d_lrd strategy.local_steps=3 strategy.window=1",
    "strategy=fedavg objective=fedprox client.momentum=0.5",
    "strategy=fedavg privacy=server_side privacy.noise_seed=3",
    "strategy=fedavg privacy=local privacy.noise_seed=3",
]


def initial(seed: int = 1, *settings: str) -> dict[str, np.ndarray]:
    evaluation = preparation.prepare(compose(["model=mlp", *settings, f"seed={seed}"])).evaluation
    return {**evaluation.frozen, **evaluation.model}


@pytest.mark.parametrize("rule", [*RULES, *(pytest.param(rule, marks=pytest.mark.slow) for rule in MORE_RULES)])
def test_every_rule_trains_only_what_is_sent(tmp_path: Path, rule: str) -> None:
    folder = play(tmp_path, "rounds=2", HEAD, *rule.split()).folder
    saved, start = load_file(folder / "model.safetensors"), initial()
    assert set(saved) == set(start)
    for name, array in start.items():
        same = saved[name].tobytes() == array.tobytes()
        assert same == (name not in SENT), name
    assert set(load_file(folder / "checkpoint/round-000002/model.safetensors")) == SENT
    rows = read_lines(folder / "clients.jsonl")
    assert {row["status"] for row in rows} == {"used"}
    least = sum(array.nbytes for name, array in start.items() if name in SENT)
    records = 2 if any(name in rule for name in ("scaffold", "feddyn")) else 1  # both send what they keep, too
    assert all(records * least <= row["bytes/up"] < records * (least + 512) for row in rows)
    assert all(row["bytes/down"] < 3 * (least + 512) for row in rows)  # nothing frozen: it is in the cache


@pytest.mark.slow
def test_a_model_without_frozen_arrays_is_trained_as_a_whole(tmp_path: Path) -> None:
    assert weights(play(tmp_path, "rounds=1", "train=['*']").folder) == weights(play(tmp_path, "rounds=1").folder)


def test_fednlr_reports_rates_of_trained_layers_only(tmp_path: Path) -> None:
    row = play(tmp_path, "rounds=1", HEAD, "client=fednlr").rows[-1]
    assert {key.rpartition("/")[2] for key in row if key.startswith("fednlr/mu")} == {"fc2"}


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["strategy=scaffold client.momentum=0.5", "strategy=fedalr client=fednlr"])
def test_a_resumed_run_has_the_same_bits(tmp_path: Path, rule: str) -> None:
    start = play(tmp_path, "rounds=1", "name=start").folder / "model.safetensors"
    given = ["rounds=3", "cohort=2", HEAD, f"initial={start}", *rule.split()]
    whole, resumed = whole_and_resumed(tmp_path, *given)
    assert weights(whole) == weights(resumed)
    assert table(whole) == table(resumed)
    further = play(tmp_path, "rounds=1", HEAD, f"initial={whole / 'model.safetensors'}").folder
    assert load_file(further / "model.safetensors")["fc1.weight"].tobytes() == (
        load_file(start)["fc1.weight"].tobytes()
    )


@pytest.mark.parametrize("patterns", ["nix", "fc2.*,nix", ""])
def test_patterns_that_name_nothing(patterns: str) -> None:
    with pytest.raises(ConfigError, match=r"train = .* is not allowed: "):
        preparation.prepare(compose(["model=mlp", f"train=[{patterns}]"]))


# ---------------------------------------------------------------- normalisation


class Normalised(nn.Module):
    """A BatchNorm in the body and one in the head, and dropout."""

    def __init__(self, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs.shape[0], 3, 5, stride=4)
        self.bn = nn.BatchNorm2d(3)
        self.head = nn.Sequential(nn.BatchNorm1d(108), nn.Dropout(0.3), nn.Linear(108, outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.head(self.bn(self.conv(x)).relu().flatten(1))
        return found


@pytest.fixture
def normalised(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setitem(MODELS._parts, "normalised", Part("normalised", Normalised, "Small."))
    message_settings.forget()
    yield "model=normalised"
    message_settings.forget()


@pytest.mark.slow
def test_frozen_statistics_do_not_move(tmp_path: Path, normalised: str) -> None:
    first = play(tmp_path, "rounds=1", normalised, "name=first").folder / "model.safetensors"
    seen: list[dict[str, Any]] = []

    def trained(message: Message, context: Context) -> Message:
        reply = real_client(message, context)
        job = from_message.read(message.content.config_records[wire.CONFIG], context)
        seen.append({name: array.clone() for name, array in job.model.state_dict().items()})
        return reply

    app = ClientApp()
    app.query()(real_client)
    app.train()(trained)
    folder = play(tmp_path, "rounds=2", normalised, "train=['head']", f"initial={first}", app=app).folder
    before, after = load_file(first), load_file(folder / "model.safetensors")
    for name in before:
        assert (before[name].tobytes() == after[name].tobytes()) == (not name.startswith("head")), name
    # Not even inside a client: otherwise its head is trained with statistics that nobody keeps.
    assert seen
    for state in seen:
        assert state["bn.running_mean"].numpy().tobytes() == before["bn.running_mean"].tobytes()
        assert int(state["bn.num_batches_tracked"]) == int(before["bn.num_batches_tracked"])
        assert int(state["head.0.num_batches_tracked"]) > int(before["head.0.num_batches_tracked"])


# ---------------------------------------------------------------- clients with their own caches


def elsewhere(folder: Path, before: Callable[[Message, Path], None] = lambda message, cache: None) -> ClientApp:
    """The real client, as on another machine for each client: with its own cache, and a new process each time."""
    app = ClientApp()

    def answer(message: Message, context: Context) -> Message:
        cache = folder / str(context.node_config["partition-id"])
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FEDSTRIDE_CACHE", str(cache))
            frozen_cache._verified.cache_clear()
            before(message, cache)
            return real_client(message, context)

    for register in (app.query(), app.train(), app.evaluate()):
        register(answer)
    return app


def deliveries(folder: Path) -> list[tuple[int, int]]:
    """Round and client of each message that had the frozen arrays, which are most of the model."""
    rows = read_lines(folder / "clients.jsonl")
    return [(row["round"], row["client"]) for row in rows if row["bytes/down"] > 100_000]


@pytest.mark.slow
def test_frozen_arrays_are_sent_once_to_each_client(tmp_path: Path) -> None:
    local = play(tmp_path, "rounds=3", HEAD, "evaluate_clients=true").folder
    remote = play(tmp_path, "rounds=3", HEAD, "evaluate_clients=true", app=elsewhere(tmp_path / "caches")).folder
    assert deliveries(local) == []
    assert deliveries(remote) == [(1, client) for client in range(4)]
    assert weights(remote) == weights(local)
    again = play(tmp_path, "rounds=1", HEAD, app=elsewhere(tmp_path / "caches")).folder
    assert deliveries(again) == []  # another run with the same arrays


@pytest.mark.slow
def test_a_client_that_lost_them_gets_them_again(tmp_path: Path) -> None:
    def lose(message: Message, cache: Path) -> None:
        config = message.content.config_records[wire.CONFIG]
        if config.get(wire.SERVER_ROUND) == 2 and cache.name == "1":
            for entry in cache.glob("frozen-*"):
                shutil.rmtree(entry)

    folder = play(tmp_path, "rounds=4", HEAD, app=elsewhere(tmp_path / "caches", lose)).folder
    rows = {(row["round"], row["client"]): row for row in read_lines(folder / "clients.jsonl")}
    assert rows[2, 1]["status"] == "rejected"
    assert "are no longer in this machine's cache" in rows[2, 1]["reason"]
    assert [key for key, row in rows.items() if row["status"] != "used"] == [(2, 1)]
    assert deliveries(folder) == [*((1, client) for client in range(4)), (3, 1)]


@pytest.mark.slow
def test_a_client_that_cannot_keep_them_gets_them_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("client_app.state.frozen_arrays.frozen_cache.keep", lambda arrays: False)
    folder = play(tmp_path, "rounds=2", HEAD, app=elsewhere(tmp_path / "caches")).folder
    assert deliveries(folder) == [(t, client) for t in (1, 2) for client in range(4)]
    for row in read_lines(folder / "clients.jsonl"):
        assert row["status"] == "used"
        assert row["note"] == "it could not write the frozen arrays to its cache, and gets them each time"


def test_damaged_arrays_are_refused(tmp_path: Path) -> None:
    def damage(message: Message, cache: Path) -> None:
        records = dict(message.content.items())
        if wire.FROZEN in records and cache.name == "2":
            records[wire.FROZEN] = type(records[wire.FROZEN])(dict(list(records[wire.FROZEN].items())[:1]))
            message.content = RecordDict(records)

    app = elsewhere(tmp_path / "caches", damage)
    folder = play(tmp_path, "rounds=1", HEAD, "screening.quorum=3", app=app).folder
    bad = [row for row in read_lines(folder / "clients.jsonl") if row["status"] != "used"]
    assert [row["client"] for row in bad] == [2]
    assert "the received frozen arrays are damaged" in bad[0]["reason"]
