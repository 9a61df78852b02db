"""Clients trained together against clients trained alone: the same replies, for every rule and network."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from torch import nn

from client_app import message_settings, stages
from client_app.app import app
from client_app.registry import OBJECTIVES, RULES
from client_app.training.method import Job, Method, Plan, Received, Result, Returned, State
from client_app.training.stackable_parts import Correction
from fedstride.arrays.named import Arrays, to_record, views
from fedstride.arrays.on_device import TensorArray
from fedstride.flower import identity
from fedstride.messages import wire
from fedstride.parts import USER_PARTS, Part
from fedstride.tasks import data
from fedstride.tasks.data import Data
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models import frozen_cache, networks_by_name
from fedstride.tasks.models.tensors import to_arrays
from fedstride.tasks.networks.norms import BatchNorm1d
from fedstride.tasks.registry import MODELS, PARTITIONS, TASKS
from fedstride.tasks.spec import Spec, Target
from lab.engine.local_grid import LocalGrid
from lab.engine.vectorized import captured_graphs, client_draws, examples_on_gpu, memory, training, trial_step
from lab.engine.vectorized import clients as begun_clients
from lab.engine.vectorized import grid as engine
from lab.engine.vectorized.functions import GeneratorDraws, conv2d_of_patches
from lab.engine.vectorized.grid import VectorizedGrid

CLIENTS = 5
SIZES = (7, 13, 1, 9, 6)  # examples of the clients; with batches of 4, one has a single batch of one example
RUN = "0123456789abcdef"
CLOSE = 1e-4


def _pixels(shape: tuple[int, ...], classes: int = 4) -> Data:
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 256, (sum(SIZES), *shape), np.uint8), rng.integers(0, classes, sum(SIZES))
    return Data(Spec.images(shape, classes, (0.5,) * shape[0], (0.3,) * shape[0]), x, y, x[:2], y[:2])


def _signals() -> Data:
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(sum(SIZES), 2, 48)).astype(np.float32), rng.integers(0, 3, sum(SIZES))
    return Data(Spec(Inputs(Kind.SIGNAL, (2, 48)), 3), x, y, x[:2], y[:2])


def _texts() -> Data:
    rng = np.random.default_rng(5)
    x, y = rng.integers(1, 30, (sum(SIZES), 9)), rng.integers(0, 3, sum(SIZES))
    for row, length in zip(x, rng.integers(0, 10, len(x)), strict=True):
        row[length:] = 0
    return Data(Spec(Inputs(Kind.TOKENS, (9,), 30), 3), x, y, x[:2], y[:2])


def _values() -> Data:
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(sum(SIZES), 6)).astype(np.float32), rng.normal(size=(sum(SIZES), 2)).astype(np.float32)
    spec = Spec(Inputs(Kind.TABLE, (6,)), 2, Target.VALUES, target_mean=(1.0, 2.0), target_std=(2.0, 3.0))
    return Data(spec, x, y, x[:2], y[:2])


TASKS_HERE = {
    "digits": lambda: _pixels((1, 28, 28)),
    "colours": lambda: _pixels((3, 16, 16)),
    "signals": _signals,
    "texts": _texts,
    "values": _values,
}


def _unequal(source: Any, clients: int, seed: int) -> list[np.ndarray]:
    return np.split(np.arange(sum(SIZES)), np.cumsum(SIZES)[:-1])


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("FEDSTRIDE_STATE", str(tmp_path / "state"))
    for name, make in TASKS_HERE.items():
        monkeypatch.setitem(TASKS._parts, name, Part(name, make, name))
    monkeypatch.setitem(PARTITIONS._parts, "unequal", Part("unequal", _unequal, "Of the sizes above."))
    identity.set_identity()
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    _forget()


def _forget() -> None:
    """What this process keeps of its tasks and rounds."""
    message_settings.forget()
    data._load.cache_clear()


class Setup:
    """A task, a network, and what clients do with it."""

    def __init__(self, task: str, model: str, settings: Mapping[str, Any] | None = None, **client: Any) -> None:
        self.task, self.model = TASKS.config(task)(), MODELS.config(model)(**(settings or {}))
        self.rule = client.pop("rule", "sgd")
        self.objective = client.pop("objective", OBJECTIVES.config("plain")())
        self.task.augmentation = client.pop("augmentation", None)
        self.train, self.frozen = client.pop("train", None), ""
        self.client = {"device": "cpu", "lr": 0.05, "batch_size": 4, **client}
        self.spec = data.load(self.task).spec

    def initial(self) -> Arrays:
        return to_arrays(networks_by_name.build(self.model, self.spec.inputs, self.spec.outputs, seed=1))

    def config(self, server_round: int, accepted: int, more: Mapping[str, Any]) -> ConfigRecord:
        values = {
            wire.SEED: 1,
            wire.NUM_CLIENTS: CLIENTS,
            wire.SERVER_ROUND: server_round,
            wire.RUN: RUN,
            wire.ACCEPTED: accepted,
            wire.OLDEST: 0,
            **({} if self.train is None else {wire.TRAIN: self.train, wire.FROZEN: self.frozen}),
            **self.spec.flatten(),
            **RULES.flatten(RULES.config(self.rule)(**self.client)),
            **OBJECTIVES.flatten(self.objective),
            **TASKS.flatten(self.task),
            **MODELS.flatten(self.model),
            **PARTITIONS.flatten(PARTITIONS.config("unequal")()),
        }
        return ConfigRecord(values | dict(more))


class HalfSent:
    """What a server rule sends in addition to the model."""

    def __init__(self, name: str, arrays: Sequence[str] = (), **values: Any) -> None:
        self.name, self.arrays, self.values = name, arrays, values

    def plain(self) -> dict[str, Any]:
        return {wire.HALVES: [self.name], **{wire.of_half(self.name, k): v for k, v in self.values.items()}}


def exchange(
    grid: LocalGrid,
    setup: Setup,
    half: HalfSent | None = None,
    *,
    model: Arrays | None = None,
    server_round: int = 1,
    clients: Sequence[int] = range(CLIENTS),
    accepted: int = 0,
) -> dict[int, Message]:
    """The replies of these clients, by client."""
    start = setup.initial() if model is None else model
    content = RecordDict({wire.ARRAYS: to_record(start)})
    content[wire.CONFIG] = setup.config(server_round, accepted, {} if half is None else half.plain())
    for name in () if half is None else half.arrays:
        trained = dict(
            networks_by_name.build(setup.model, setup.spec.inputs, setup.spec.outputs, 1).named_parameters()
        )
        content[wire.of_half(half.name, name)] = to_record(
            {key: np.full_like(start[key], 0.01 * i) for i, key in enumerate(trained)}
        )
    nodes = [list(grid.get_node_ids())[client] for client in clients]
    messages = [Message(content=content, message_type=MessageType.TRAIN, dst_node_id=node) for node in nodes]
    client_of = dict(zip(grid.push_messages(messages), clients, strict=True))
    replies: dict[int, Message] = {}
    while len(replies) < len(messages):
        for reply in grid.pull_messages(list(client_of)):
            replies[client_of[reply.metadata.reply_to_message_id]] = reply
    return replies


def messages(grid: LocalGrid, setup: Setup, each: Sequence[tuple[Mapping[str, Any], Arrays]]) -> list[Message]:
    """For each client a message of its own: with these values in its config, and this model."""
    return [
        Message(
            content=RecordDict({wire.CONFIG: setup.config(1, 0, values), wire.ARRAYS: to_record(model)}),
            message_type=MessageType.TRAIN,
            dst_node_id=node,
        )
        for node, (values, model) in zip(grid.get_node_ids(), each, strict=True)
    ]


def alone() -> LocalGrid:
    return LocalGrid(app, CLIENTS)


def together(size: int = CLIENTS) -> VectorizedGrid:
    return VectorizedGrid(app, CLIENTS, size=size)


def in_folder(grid: LocalGrid, folder: Path) -> LocalGrid:
    grid.keep_client_states_in(folder)
    return grid


def assert_same(expected: Mapping[int, Message], found: Mapping[int, Message], close: float = CLOSE) -> None:
    """The same records, names and dtypes, and values that differ by rounding only."""
    assert list(found) == list(expected)
    for client, one in expected.items():
        other = found[client]
        assert not one.has_error(), one.error
        assert not other.has_error(), other.error
        assert sorted(one.content) == sorted(other.content)
        for name, record in one.content.array_records.items():
            a, b = views(record), views(other.content.array_records[name])
            assert list(a) == list(b)
            for key in a:
                assert a[key].dtype == b[key].dtype
                np.testing.assert_allclose(b[key], a[key], rtol=close, atol=close, err_msg=f"{client} {key}")
        a, b = (each.content.metric_records[wire.METRICS] for each in (one, other))
        assert list(a) == list(b)
        for key in set(a) - {wire.TRAIN_SECONDS}:
            np.testing.assert_allclose(b[key], a[key], rtol=1e-3, atol=1e-4, err_msg=f"{client} {key}")


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The warnings of Flower's logger."""
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


def bits(replies: Mapping[int, Message]) -> dict[Any, bytes]:
    return {
        (client, name, key): np.asarray(array).tobytes()
        for client, reply in replies.items()
        for name, record in reply.content.array_records.items()
        for key, array in views(record).items()
    }


NETWORKS: dict[str, tuple[Any, ...]] = {
    "mlp": ("digits", "mlp", {"width": 20}),
    "cnn_mnist": ("digits", "cnn_mnist"),
    "lenet5": ("colours", "lenet5"),
    "batch norm": ("signals", "cnn1d", {"width": 4}),
    "group norm": ("signals", "cnn1d", {"width": 4, "norm": "group", "groups": 2}),
    "textcnn": ("texts", "textcnn", {"embedding": 8, "filters": 5}),
}
MORE_NETWORKS: dict[str, tuple[Any, ...]] = {
    "resnet20": ("colours", "resnet20"),
    "vgg9": ("colours", "vgg9"),
    "lstm": ("texts", "lstm", {"width": 6, "layers": 2, "embedding": 5}),
    "transformer": ("texts", "transformer", {"width": 8, "depth": 1, "heads": 2, "dropout": 0.0}),
    "vit": ("colours", "vit", {"width": 8, "depth": 1, "heads": 2, "mlp_width": 8, "dropout": 0.0}),
    "values": ("values", "mlp3", {"width": 7}),
}
RULES_HERE: dict[str, tuple[dict[str, Any], HalfSent | None]] = {
    "sgd": ({"momentum": 0.9, "weight_decay": 0.01, "lr_decay": 0.9, "local_epochs": 2}, None),
    "fednlr": ({"rule": "fednlr", "momentum": 0.5}, None),
    "fedprox": ({"objective": OBJECTIVES.config("fedprox")(mu=0.5)}, None),
    "fedrs": ({"objective": OBJECTIVES.config("fedrs")(alpha=0.5)}, None),
    "fedlc": ({"objective": OBJECTIVES.config("fedlc")(tau=1.0)}, None),
    "feddyn": ({"local_steps": 2}, HalfSent("feddyn", alpha=0.3)),
    "scaffold": ({"momentum": 0.5}, HalfSent("scaffold", ["control"])),
    "two_d_lrd": ({}, HalfSent("two_d_lrd", rate_factors=[1.0, 0.5, 0.25])),
    "fednova": ({}, HalfSent("fednova")),
}


ON_ALL = ("sgd", "fednlr", "fedprox", "feddyn", "scaffold", "two_d_lrd")
"""The others are tried on two networks."""

WITH_STATE = ("sgd", "feddyn", "scaffold", "two_d_lrd")
"""Rules whose second round differs from a first one: the rate of `sgd` decays."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "network"),
    [(rule, name) for rule in RULES_HERE for name in NETWORKS if rule in ON_ALL or name in ("mlp", "textcnn")],
)
def test_every_rule_gives_the_replies_of_clients_alone(rule: str, network: str, tmp_path: Path) -> None:
    """In the second round methods have their states, and other clients take part."""
    client, half = RULES_HERE[rule]
    setup = Setup(*NETWORKS[network], **client)
    one, other = in_folder(alone(), tmp_path / "alone"), in_folder(together(), tmp_path / "together")
    first = exchange(one, setup, half)
    assert_same(first, exchange(other, setup, half))
    if rule not in WITH_STATE:
        return
    model = dict(views(first[1].content.array_records[wire.ARRAYS]))
    later = {"model": model, "server_round": 2, "accepted": 1, "clients": [4, 0, 1]}
    assert_same(exchange(one, setup, half, **later), exchange(other, setup, half, **later))


@pytest.mark.slow
@pytest.mark.parametrize("network", MORE_NETWORKS)
def test_every_network_gives_the_replies_of_clients_alone(network: str) -> None:
    setup = Setup(*MORE_NETWORKS[network], lr=0.01)
    assert_same(exchange(alone(), setup), exchange(together(), setup))


def test_the_bits_are_the_same_from_run_to_run() -> None:
    setup = Setup("texts", "transformer", {"width": 8, "depth": 1, "heads": 2}, momentum=0.9)
    assert bits(exchange(together(), setup)) == bits(exchange(together(), setup))


def test_a_single_client_has_the_bits_of_training_alone() -> None:
    setup = Setup(*NETWORKS["lenet5"])
    assert bits(exchange(together(1), setup)) == bits(exchange(alone(), setup))


def test_clients_are_trained_in_parts() -> None:
    setup = Setup(*NETWORKS["mlp"])
    assert_same(exchange(alone(), setup), exchange(together(2), setup))


@pytest.mark.parametrize("names", [["flip"], ["crop", "flip"]])
def test_augmentation_is_that_of_each_client(names: list[str]) -> None:
    setup = Setup("colours", "lenet5", augmentation=names, batch_size=5)
    assert_same(exchange(alone(), setup), exchange(together(), setup))


def test_frozen_parameters_and_statistics_stay() -> None:
    setup = Setup("signals", "cnn1d", {"width": 4}, train=["fc", "conv3", "norm3"])
    sent = dict(setup.initial())
    kept = {name: sent.pop(name) for name in list(sent) if not name.startswith(("fc", "conv3", "norm3"))}
    frozen_cache.keep(kept)
    setup.frozen = frozen_cache.digest_of(kept)
    assert_same(exchange(alone(), setup, model=sent), exchange(together(), setup, model=sent))


def test_a_client_that_fails_costs_its_own_reply_only() -> None:
    setup, grid = Setup(*NETWORKS["mlp"]), together()
    grid._contexts[3].node_config["partition-id"] = 99
    replies = exchange(grid, setup)
    assert replies.pop(1).error.reason.startswith("ConfigError: node-config partition-id = 99")
    expected = exchange(alone(), setup)
    del expected[1]
    assert_same(expected, replies)


def test_a_client_whose_values_are_not_numbers_does_not_touch_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _values()
    expected = exchange(together(), Setup("values", "mlp", {"width": 7}))
    found.train_x[7:20] = np.nan  # those of client 1
    _forget()
    monkeypatch.setitem(TASKS._parts, "values", Part("values", lambda: found, "One client has no numbers."))
    replies = exchange(together(), Setup("values", "mlp", {"width": 7}))
    assert np.isnan(views(replies.pop(1).content.array_records[wire.ARRAYS])["fc1.weight"]).all()
    del expected[1]
    assert_same(expected, replies, close=0.0)


def test_a_correction_of_a_users_method_trains_alone_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Half(Method):
        def begin(self, job: Job, received: Received, state: State) -> Plan:
            return Plan(corrections=(lambda gradients, parameters: [2.0 * g for g in gradients],))

    monkeypatch.setitem(USER_PARTS, "half", {"twice": Part("twice", Half, "Twice.")})
    setup = Setup(*NETWORKS["mlp"])
    grid = together()
    assert bits(exchange(grid, setup, HalfSent("twice"))) == bits(exchange(alone(), setup, HalfSent("twice")))
    exchange(grid, setup, HalfSent("twice"))
    (said,) = warnings(caplog)
    assert "halves.twice has a correction of the gradient" in said


@dataclass(frozen=True)
class Weighted(Correction):
    """Gradients times a tensor of each client."""

    factors: Sequence[torch.Tensor]

    def __call__(self, gradients: Any, parameters: Any) -> Any:
        return [factor * g for factor, g in zip(self.factors, gradients, strict=True)]


def test_a_correction_with_tensors_of_each_client_trains_together(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Half(Method):
        def begin(self, job: Job, received: Received, state: State) -> Plan:
            factors = [torch.full_like(each, 0.5 + job.client_id) for each in job.parameters.values()]
            return Plan(corrections=(Weighted(factors),))

    monkeypatch.setitem(USER_PARTS, "half", {"weighted": Part("weighted", Half, "Weighted.")})
    setup, sent = Setup(*NETWORKS["mlp"]), HalfSent("weighted")
    found = exchange(together(), setup, sent)
    assert_same(exchange(alone(), setup, sent), found)
    assert bits(found) != bits(exchange(together(), setup))
    assert not warnings(caplog)


@pytest.mark.parametrize("behind_torch", [False, True], ids=["in place", "in its data"])
def test_a_method_that_changes_the_received_model_changes_it_for_its_own_client(
    behind_torch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Half(Method):
        def begin(self, job: Job, received: Received, state: State) -> Plan:
            with torch.no_grad():
                for each in job.parameters.values():
                    (each.data if behind_torch else each).add_(0.01 * job.client_id)
            return Plan()

    monkeypatch.setitem(USER_PARTS, "half", {"moved": Part("moved", Half, "Moved.")})
    setup = Setup(*NETWORKS["mlp"])
    assert_same(exchange(alone(), setup, HalfSent("moved")), exchange(together(), setup, HalfSent("moved")))


def test_a_model_that_all_clients_get_is_loaded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    setup, found = Setup(*NETWORKS["cnn_mnist"]), []
    expected = exchange(alone(), setup)
    real = stages.load_into
    monkeypatch.setattr(stages, "load_into", lambda *arguments: found.append(real(*arguments)))
    assert_same(expected, exchange(together(), setup))
    assert len(found) == 1


@pytest.mark.parametrize(("half", "loaded"), [(None, 0), ("fednova", 0), ("feddyn", CLIENTS)])
def test_trained_weights_are_loaded_for_the_methods_that_read_them(
    half: str | None, loaded: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    setup, sent, found = Setup(*NETWORKS["batch norm"]), RULES_HERE[half or "sgd"][1], list[None]()
    expected = exchange(in_folder(alone(), tmp_path / "alone"), setup, sent)
    real = begun_clients._load
    monkeypatch.setattr(begun_clients, "_load", lambda *arguments: found.append(real(*arguments)))
    assert_same(expected, exchange(in_folder(together(), tmp_path / "together"), setup, sent))
    assert len(found) == loaded


@pytest.mark.parametrize("half", [None, "scaffold", "feddyn"])
def test_models_that_stay_on_the_device_have_the_same_bits(half: str | None, tmp_path: Path) -> None:
    setup, sent = Setup(*NETWORKS["batch norm"]), RULES_HERE[half or "sgd"][1]
    host, device = (
        exchange(in_folder(VectorizedGrid(app, CLIENTS, stay=stay), tmp_path / str(stay)), setup, sent)
        for stay in (False, True)
    )
    assert bits(host) == bits(device)
    kinds = {type(each) for reply in device.values() for each in reply.content[wire.ARRAYS].values()}
    assert kinds == {TensorArray}


def test_each_client_begins_with_the_model_of_its_message() -> None:
    """Also after a model that does not fit, of which a part may have been loaded."""
    setup = Setup(*NETWORKS["mlp"])
    first = setup.initial()
    second = {name: array + 1.0 for name, array in first.items()}
    broken = {name: array.T if array.ndim > 1 else array + 9.0 for name, array in first.items()}
    found = {}
    half = HalfSent("q_fedavg").plain()
    each = [(half, model) for model in (first, second, broken, first, second)]
    for grid in (alone(), together()):
        found[type(grid)] = dict(enumerate(grid.send_and_receive(messages(grid, setup, each))))
    one, other = found[LocalGrid], found[VectorizedGrid]
    for replies in (one, other):
        assert "does not fit this client's network" in replies.pop(2).error.reason
    assert_same(one, other)


def test_clients_with_a_value_of_their_own_in_the_message_train_together(monkeypatch: pytest.MonkeyPatch) -> None:
    setup, grid, sizes = Setup(*NETWORKS["mlp"]), together(), list[int]()
    real = training.train_together
    monkeypatch.setattr(training, "train_together", lambda each, **options: sizes.append(len(each)) or real(each))
    sent = messages(grid, setup, [({"mine.t": client}, setup.initial()) for client in range(CLIENTS)])
    assert not [reply.error for reply in grid.send_and_receive(sent) if reply.has_error()]
    assert sizes == [CLIENTS]


def test_a_users_method_may_keep_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    class Half(Method):
        def begin(self, job: Job, received: Received, state: State) -> Plan:
            self.network, self.draw = job.model, torch.rand(())
            return Plan()

        def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
            length = sum(float(each.detach().square().sum()) for each in self.network.parameters())
            return Returned(metrics={"length": length, "draws": float(self.draw + torch.rand(()))}), {}

    monkeypatch.setitem(USER_PARTS, "half", {"keeps": Part("keeps", Half, "Keeps the network.")})
    setup, sent = Setup(*NETWORKS["lenet5"]), HalfSent("keeps")
    expected, found = exchange(alone(), setup, sent), exchange(together(), setup, sent)
    assert_same(expected, found)
    of_clients = {each.content.metric_records[wire.METRICS]["length"] for each in found.values()}
    assert len(of_clients) == CLIENTS


def test_with_too_little_memory_fewer_clients_train_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real, sizes = training.train_together, []

    def small(clients: Sequence[Any], **options: Any) -> Any:
        sizes.append(len(clients))
        if len(clients) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(clients)

    monkeypatch.setattr(training, "train_together", small)
    setup = Setup(*NETWORKS["batch norm"])
    assert_same(exchange(alone(), setup), exchange(together(), setup))
    assert sizes == [5, 2, 3, 2]
    assert warnings(caplog) == ["5 clients need more memory than there is; 2 train at once",
                                "3 clients need more memory than there is; 1 train at once"]  # fmt: skip


def test_the_number_of_clients_that_fit() -> None:
    """100 bytes are shared, each client needs 50: 0.8 of 1000 leave 700 for clients."""
    assert memory.fitting(1000, 150, 200) == (14, 50, 1000)
    assert memory.fitting(100, 150, 200).clients == 1


# ---------------------------------------------------------------- which networks


class Mixed(torch.nn.Module):
    """The mean over the examples is subtracted: an example's output depends on the others."""

    def __init__(self, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(inputs.size, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.fc(x.flatten(1))
        return x - x.square().mean(0)


class Noisy(Mixed):
    """Noise from torch's generator."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x.flatten(1) + torch.randn(len(x), 1))


class Counted(Mixed):
    """Python numbers that depend on values."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x.flatten(1)) * (2.0 if x.sum().item() > 0 else 1.0)


@pytest.mark.parametrize(
    ("network", "reason"),
    [(Mixed, "would depend on other"), (Noisy, "random operation"), (Counted, "item()")],
)
def test_a_network_that_cannot_be_stacked_is_refused_with_the_reason(
    network: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MODELS._parts, "users", Part("users", network, "A user's."))
    spec = Spec.images((1, 4, 4), 3, (0.5,), (0.3,))
    assert reason in (trial_step.obstacle(MODELS.config("users")(), spec, None, None) or "")


class Tied(torch.nn.Module):
    """Two layers with the same weight, and a parameter without influence."""

    def __init__(self, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        self.one, self.two = (torch.nn.Linear(inputs.size, inputs.size) for _ in range(2))
        self.two.weight = self.one.weight
        self.fc, self.unused = torch.nn.Linear(inputs.size, outputs), torch.nn.Parameter(torch.ones(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(self.two(self.one(x.flatten(1)).relu()).relu())


class Normed(torch.nn.Module):
    """BatchNorm of vectors: a mini-batch of one example has no variance."""

    def __init__(self, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        self.fc1, self.norm = torch.nn.Linear(inputs.size, 8), BatchNorm1d(8)
        self.fc2 = torch.nn.Linear(8, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.norm(self.fc1(x.flatten(1))).relu())


def test_a_batch_of_one_example_is_normalised_with_the_running_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if it is filled up to the others' size; the number of tracked batches is that of training alone."""
    monkeypatch.setitem(MODELS._parts, "users", Part("users", Normed, "A user's."))
    setup = Setup("values", "users", local_epochs=2)
    found = exchange(together(), setup)
    assert_same(exchange(alone(), setup), found)
    tracked = [int(views(found[i].content.array_records[wire.ARRAYS])["norm.num_batches_tracked"]) for i in (2, 1)]
    assert tracked == [0, 2 * 3]  # one example; 13 examples in batches of 4, the last of one


def test_tied_and_unused_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS._parts, "users", Part("users", Tied, "A user's."))
    setup = Setup("values", "users", momentum=0.9)
    assert trial_step.obstacle(setup.model, setup.spec, None, None) is None
    assert_same(exchange(alone(), setup), exchange(together(), setup))


class Twice(nn.Module):
    """Modules that have two names: a layer, a normalisation, a block of both; and a tied weight."""

    def __init__(self, which: str, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        size = inputs.size
        self.first, self.norm = nn.Linear(size, size), BatchNorm1d(size)
        self.block = nn.Sequential(nn.Linear(size, size), BatchNorm1d(size), nn.ReLU())
        self.other, self.last = nn.Linear(size, size), nn.Linear(size, outputs)
        if which in ("layer", "all"):
            self.again = self.first
        if which in ("norm", "all"):
            self.norm_again = self.norm
        if which in ("block", "all"):
            self.block_again = self.block
        if which in ("tied", "all"):
            self.other.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> Any:
        x = self.block(self.norm(self.first(x.flatten(1))))
        x = getattr(self, "block_again", self.block)(getattr(self, "norm_again", self.norm)(x))
        return self.last(self.other(getattr(self, "again", self.first)(x).relu()))


@pytest.mark.parametrize("which", ["layer", "norm", "block", "tied", "all"])
def test_modules_with_two_names(which: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In two rounds: the first one must leave the network as it was."""

    class Users(Twice):
        def __init__(self, inputs: Inputs, outputs: int) -> None:
            super().__init__(which, inputs, outputs)

    monkeypatch.setitem(MODELS._parts, "users", Part("users", Users, "A user's."))
    setup, one, other = Setup("values", "users", lr=0.01), alone(), together()
    assert trial_step.obstacle(setup.model, setup.spec, None, None) is None
    assert_same(exchange(one, setup), exchange(other, setup))
    later: Any = {"server_round": 2, "accepted": 1}
    assert_same(exchange(one, setup, **later), exchange(other, setup, **later))


@pytest.mark.parametrize(
    "network",
    [*NETWORKS.values(), MORE_NETWORKS["lstm"], MORE_NETWORKS["resnet20"], ("texts", "transformer")],
    ids=lambda network: str(network[1]),
)
def test_the_networks_of_the_project_can_be_stacked(network: tuple[Any, ...]) -> None:
    setup = Setup(*network)
    assert trial_step.obstacle(setup.model, setup.spec, None, None) is None


# ---------------------------------------------------------------- dropout


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_is_drawn_for_each_client_from_its_own_generator(p: float) -> None:
    """Each client keeps a share of 1 - p, up to 5 standard deviations, and has the draws of its seed alone."""
    counts, width = [40, 25], 500

    def keep(seeds: Sequence[int]) -> torch.Tensor:
        draws = GeneratorDraws([torch.Generator().manual_seed(seed) for seed in seeds], counts, 40)
        return draws.keep(torch.zeros(()), (40, width), p, images=False)

    found = keep([1, 2])
    for client, count in enumerate(counts):
        kept = found[client, :count]
        assert kept.unique().tolist() == [0.0, pytest.approx(1.0 / (1.0 - p))]
        share = float((kept > 0).double().mean())
        assert abs(share - (1.0 - p)) < 5.0 * np.sqrt(p * (1.0 - p) / kept.numel())
        assert not found[client, count:].any()
    assert torch.equal(found[1], keep([7, 2])[1])
    assert not torch.equal(found[0, :25], found[1, :25])


@pytest.mark.slow
@pytest.mark.parametrize("network", ["transformer", "vit"])
def test_draws_from_a_counter_do_not_depend_on_who_trains_together(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: the results of parts of 5, 2 and 1 clients are the same, and not those of other draws."""
    task, model, settings = MORE_NETWORKS[network]
    setup = Setup(task, model, {**settings, "dropout": 0.3})
    usual = exchange(together(), setup)
    monkeypatch.setattr(
        training, "draws_of", lambda clients: client_draws.FromKeys(clients, clients[0].job.device)
    )
    monkeypatch.setattr(engine, "on_gpu", lambda job: True)
    found, again, in_twos, in_ones = (
        exchange(VectorizedGrid(app, CLIENTS, size=size, stay=False), setup) for size in (5, 5, 2, 1)
    )
    assert bits(found) == bits(again)
    assert_same(found, in_twos)
    assert_same(found, in_ones)
    with pytest.raises(AssertionError):
        assert_same(usual, found)


class Again:
    """Replaces a graph where there is no GPU: it repeats the captured step, with the same tensors."""

    def __init__(self, act: captured_graphs.Act, inputs: Sequence[torch.Tensor]) -> None:
        self.act, self.inputs = act, inputs

    def replay(self) -> None:
        self.act(self.inputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("network", "rule"),
    [
        ("lenet5", {"rule": "fednlr"}),
        ("batch norm", {"momentum": 0.9}),
        ("mlp", {"rule": "fednlr", "momentum": 0.9, "weight_decay": 0.01}),
        ("vit", {}),
    ],
    ids=str,
)
def test_a_training_in_the_memory_of_an_earlier_one_has_the_same_bits(
    network: str, rule: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: each round in the memory of the one before, against each in new memory."""
    used: list[Any] = []

    def capture(
        self: captured_graphs.Steps, form: Any, inputs: Sequence[torch.Tensor], act: captured_graphs.Act
    ) -> Any:
        own = [each.clone() for each in inputs]
        used.append(form)
        self._graphs[form] = captured_graphs._Graph(own, Again(act, own))  # type: ignore[arg-type]
        return self._graphs[form]

    monkeypatch.setattr(captured_graphs.Steps, "_captured", capture)
    monkeypatch.setattr(training._Training, "can_be_kept", True)
    monkeypatch.setattr(
        training, "draws_of", lambda clients: client_draws.FromKeys(clients, clients[0].job.device)
    )
    examples = examples_on_gpu.kept
    monkeypatch.setattr(examples_on_gpu, "copies", lambda arrays, device: examples(arrays, device, 2**40))
    setup = Setup(*{**NETWORKS, **MORE_NETWORKS}[network], **rule)
    kept = together()
    for server_round in (1, 2, 3):
        options: Any = {"server_round": server_round, "accepted": server_round - 1}
        assert bits(exchange(kept, setup, **options)) == bits(exchange(together(), setup, **options))
    assert len(used) >= 3


@pytest.mark.slow
@pytest.mark.parametrize("network", ["cnn_mnist", "batch norm", "textcnn"])
def test_examples_that_stay_on_the_device_give_the_same_bits(
    network: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU; with augmentation and several epochs, for two rounds."""
    setup = Setup(
        *NETWORKS[network], local_epochs=2, **({"augmentation": ["crop"]} if network == "cnn_mnist" else {})
    )
    rounds = [bits(exchange(together(), setup, server_round=n)) for n in (1, 2)]
    kept: dict[Any, Any] = {}
    monkeypatch.setattr(examples_on_gpu, "_kept", kept)
    monkeypatch.setattr(
        examples_on_gpu, "copies", lambda arrays, device: examples_on_gpu.kept(arrays, device, 10**9)
    )
    assert [bits(exchange(together(), setup, server_round=n)) for n in (1, 2)] == rounds
    assert len(kept) == 2


@pytest.mark.parametrize(("stride", "padding"), [((1, 1), (0, 0)), ((2, 1), (1, 2)), ((2, 2), (1, 1))])
def test_a_convolution_of_patches_is_torchs(stride: tuple[int, int], padding: tuple[int, int]) -> None:
    """Result and gradients, for three clients at once."""
    draw = torch.Generator().manual_seed(0)
    shapes = (3, 5, 4, 9, 10), (3, 6, 4, 3, 2), (3, 6)
    given = [torch.randn(*shape, dtype=torch.float64, generator=draw).requires_grad_() for shape in shapes]
    found = torch.func.vmap(lambda x, w, b: conv2d_of_patches(x, w, b, stride, padding))(*given)
    expected = torch.stack(
        [torch.nn.functional.conv2d(x, w, b, stride, padding) for x, w, b in zip(*given, strict=True)]
    )
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(each.cos().sum(), given) for each in (found, expected)]
    torch.testing.assert_close(*gradients)
