"""The ClientApp's replies to its three kinds of messages, in this process: contents, reproducibility, errors."""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from client_talk import (
    CLIENTS,
    IID,
    TASK,
    fednlr,
    fedprox,
    initial,
    message,
    node,
    round_config,
    same,
    sgd,
    train,
    two_d_lrd,
)
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

import fedstride
from client_app import for_server_rules, from_message, message_settings
from client_app.app import app
from client_app.registry import OBJECTIVES, RULES
from fedstride.arrays.named import to_record, views
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.parts import Table
from fedstride.tasks import data
from lab.engine.local_grid import LocalGrid
from server_app.build import client_config
from server_app.config.compose import compose

ROOT = Path(__file__).parents[2]


# ---------------------------------------------------------------- train


def test_train_returns_the_model_and_metrics() -> None:
    sent = initial()
    model, metrics = train(round_config(), sent, node(7))
    assert list(model) == list(sent)
    assert all(model[name].dtype == sent[name].dtype and model[name].shape == sent[name].shape for name in sent)
    assert all(not np.array_equal(model[name], sent[name]) for name in sent)
    assert metrics[wire.NUM_EXAMPLES] == 100
    assert metrics[wire.CLIENT_ID] == 7
    assert metrics[wire.TRAIN_STEPS] == 2
    assert 0.0 < metrics[wire.TRAIN_LOSS] < 5.0
    assert 0.0 <= metrics[wire.TRAIN_ACCURACY] <= 1.0
    assert 0.0 < metrics[wire.TRAIN_SECONDS] < 60.0


def test_a_reply_contains_one_model_and_one_metric_record() -> None:
    reply = app(message(MessageType.TRAIN, round_config(), initial()), node())
    assert list(reply.content.array_records) == [wire.ARRAYS]
    assert list(reply.content.metric_records) == [wire.METRICS]
    assert not reply.content.config_records


@pytest.mark.parametrize(
    "config",
    [
        round_config(),
        round_config(client=fednlr()),
        round_config(client=sgd(momentum=0.9, weight_decay=1e-3, local_epochs=3)),
        round_config(objective=fedprox(mu=0.1)),
        round_config(**two_d_lrd([1.0, 0.5, 0.25])),
    ],
    ids=["sgd", "fednlr", "momentum", "fedprox", "2d-lrd"],
)
def test_the_same_message_gives_the_same_bits(config: ConfigRecord) -> None:
    first, metrics = train(config)
    train(round_config(5, client=sgd(lr=1.0)), context=node(3))  # another client between
    second, again = train(config)
    assert same(first, second)
    del metrics[wire.TRAIN_SECONDS], again[wire.TRAIN_SECONDS]
    assert metrics == again


def test_dropout_draws_differ_between_seeds_rounds_and_clients(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One step over all examples in a fixed order, so that only the draws of dropout can differ."""
    monkeypatch.setattr("client_app.training.batches.epochs", lambda size, *_, **__: iter([np.arange(size)]))
    whole = message_settings.members
    monkeypatch.setattr(message_settings, "members", lambda *a: [whole(*a[:-1], 1)[0]] * CLIENTS)

    def trained(server_round: int, client: int, seed: int) -> bytes:
        model, _ = train(round_config(server_round, model=tiny, seed=seed), initial(tiny), node(client))
        return model["fc.weight"].tobytes()

    assert trained(1, 0, 1) == trained(1, 0, 1)
    assert len({trained(1, 0, 1), trained(2, 0, 1), trained(1, 1, 1), trained(1, 0, 2)}) == 4


def test_training_does_not_change_the_global_random_states(tiny: str) -> None:
    before = torch.get_rng_state(), np.random.get_state()[1].tobytes(), random.getstate()
    train(round_config(model=tiny, client=fednlr()))
    after = torch.get_rng_state(), np.random.get_state()[1].tobytes(), random.getstate()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


@pytest.mark.parametrize("other", [round_config(2), round_config(seed=2), round_config(client=sgd(lr=0.06))])
def test_rounds_seeds_and_rates_differ(other: ConfigRecord) -> None:
    assert not same(train(round_config())[0], train(other)[0])


def test_clients_have_different_examples() -> None:
    assert not same(train(round_config(), context=node(0))[0], train(round_config(), context=node(1))[0])


def test_the_rate_decays_from_round_to_round() -> None:
    """One full batch: the step is proportional to the rate. lr_decay 0.5 makes round 3 a quarter of round 1."""
    sent = initial()
    steps = []
    for server_round in (1, 3):
        config = sgd(batch_size=100, lr=0.4, lr_decay=0.5)
        model, _ = train(round_config(server_round, client=config), sent)
        steps.append(model["fc2.weight"] - sent["fc2.weight"])
    np.testing.assert_allclose(steps[1], steps[0] / 4, rtol=1e-3, atol=1e-6)
    undecayed, _ = train(round_config(client=sgd(batch_size=100, lr=0.4)), sent)
    assert np.array_equal(undecayed["fc2.weight"] - sent["fc2.weight"], steps[0])


def test_batch_norm_buffers_travel(tiny: str) -> None:
    sent = initial(tiny)
    sent["bn.running_mean"] = np.float32([5.0, -5.0, 1.0])
    sent["bn.num_batches_tracked"] = np.array(40)
    model, _ = train(round_config(model=tiny), sent)
    assert list(model) == list(sent)
    assert model["bn.num_batches_tracked"].dtype == np.int64
    assert model["bn.num_batches_tracked"] == 42
    assert model["bn.running_mean"][0] > 3.0  # two batches take 0.81 of what was sent
    assert not np.array_equal(model["bn.running_var"], sent["bn.running_var"])


def test_buffers_of_one_client_do_not_affect_another(tiny: str) -> None:
    alone, _ = train(round_config(model=tiny), context=node(0))
    other = {name: np.asarray(array + 1) for name, array in initial(tiny).items()}
    train(round_config(model=tiny), other, node(1))
    after, _ = train(round_config(model=tiny), context=node(0))
    assert same(alone, after)


def test_fednlr_reports_its_rates() -> None:
    _, metrics = train(round_config(client=fednlr(lr=0.2, classifier=False)))
    assert metrics["fednlr/rate_mean/fc1"] == pytest.approx(0.2, rel=1e-9)
    assert metrics["fednlr/rate_max/fc1"] / metrics["fednlr/rate_min/fc1"] == pytest.approx(
        1 + 1 / 2 + math.log10(200), rel=1e-9
    )
    assert metrics["fednlr/rate_max/fc2"] == metrics["fednlr/rate_min/fc2"] == 0.2


def test_fednlr_without_discrepancy_has_plain_bits(tiny: str) -> None:
    plain, _ = train(round_config(model=tiny, client=sgd(momentum=0.9, weight_decay=1e-3)))
    flat = fednlr(momentum=0.9, weight_decay=1e-3, mu0=1.0, a1=0.0, a2=0.0)
    assert same(train(round_config(model=tiny, client=flat))[0], plain)


@pytest.mark.parametrize("mu", [0.0, 0.1])
def test_fedprox_against_plain(mu: float) -> None:
    plain, _ = train(round_config())
    prox, _ = train(round_config(objective=fedprox(mu=mu)))
    assert same(plain, prox) == (mu == 0.0)


def test_fedproxs_first_step_is_plain() -> None:
    one = sgd(batch_size=100)
    assert same(train(round_config(client=one))[0], train(round_config(client=one, objective=fedprox(mu=3.0)))[0])


@pytest.mark.slow
def test_fedprox_with_momentum_by_hand(tiny: str) -> None:
    """mu (w - w_sent) is added before momentum; two steps of one full batch, without dropout."""
    config = sgd(batch_size=100, local_epochs=2, momentum=0.9, lr=0.1)
    got, _ = train(round_config(client=config, objective=fedprox(mu=0.5)))
    job = from_message.read(round_config(), node(0))
    sent = [torch.from_numpy(array) for array in initial().values()]
    w = [torch.nn.Parameter(array.clone()) for array in sent]
    optimizer = torch.optim.SGD(w, lr=0.1, momentum=0.9)
    x, y = job.examples.batch(np.arange(100))
    for _ in range(2):
        optimizer.zero_grad()
        hidden = (x.flatten(1) @ w[0].T + w[1]).relu()
        loss = torch.nn.functional.cross_entropy(hidden @ w[2].T + w[3], y)
        loss = loss + 0.25 * sum((a - b).square().sum() for a, b in zip(w, sent, strict=True))
        loss.backward()
        optimizer.step()
    for ours, theirs in zip(got.values(), w, strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-4, atol=1e-6)


def test_every_example_is_trained_on_in_every_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    whole = from_message.Examples.batch

    def watched(self: from_message.Examples, positions: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        seen.extend(self.members[positions].tolist())
        return whole(self, positions)

    monkeypatch.setattr(from_message.Examples, "batch", watched)
    train(round_config(client=sgd(local_epochs=2, batch_size=30)), context=node(5))
    mine = message_settings.members(TASK, IID, CLIENTS, 1)[5].tolist()
    assert sorted(seen[:100]) == sorted(seen[100:]) == sorted(mine)
    assert seen[:100] != seen[100:]


# ---------------------------------------------------------------- evaluate, roll call


def test_evaluate_by_hand(tiny: str) -> None:
    sent = initial(tiny)
    sent["bn.running_mean"] = np.float32([0.3, -0.2, 0.1])
    reply = app(message(MessageType.EVALUATE, round_config(model=tiny), sent), node(4))
    metrics = dict(reply.content.metric_records[wire.METRICS])
    job = from_message.read(round_config(model=tiny), node(4))
    job.model.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in sent.items()})
    x, y = job.examples.batch(np.arange(100))
    with torch.no_grad():
        logits = job.model.eval()(x)
    assert metrics == {
        wire.NUM_EXAMPLES: 100,
        wire.CLIENT_ID: 4,
        "local/loss": pytest.approx(float(torch.nn.functional.cross_entropy(logits, y)), rel=1e-6),
        "local/accuracy": float((logits.argmax(1) == y).double().mean()),
    }
    assert not reply.content.array_records


def test_the_roll_call_returns_client_id_examples_device_and_versions() -> None:
    config = round_config()
    del config[wire.SERVER_ROUND]
    reply = app(message(MessageType.QUERY, config, None), node(9))
    facts = dict(reply.content.config_records[wire.ROLL_CALL])
    assert facts[wire.CLIENT_ID] == 9
    assert facts[wire.NUM_EXAMPLES] == 100
    assert facts["device"] == "cpu"
    assert facts["fedstride"] == fedstride.__version__
    assert facts["torch"] == torch.__version__
    assert {"python", "flwr"} <= set(facts)


# ---------------------------------------------------------------- as the server sends them


@pytest.mark.slow
def test_clients_can_read_the_servers_configuration() -> None:
    overrides = ["client=fednlr", "client.device=cpu", "objective=fedprox", "model=mlp", "client.threads=2"]
    config = compose(overrides)
    sent = client_config(config, data.load(config.task).spec)
    content = RecordDict(
        {
            wire.ARRAYS: to_record(initial()),
            wire.CONFIG: ConfigRecord({**sent, wire.SERVER_ROUND: 1}),
        }
    )
    grid = LocalGrid(app, config.clients)
    nodes = list(grid.get_node_ids())
    replies = grid.send_and_receive(
        [Message(content=content, message_type=MessageType.TRAIN, dst_node_id=n) for n in nodes[:3]]
    )
    assert [reply.content.metric_records[wire.METRICS][wire.CLIENT_ID] for reply in replies] == [0, 1, 2]
    assert torch.get_num_threads() == 2
    job = from_message.read(content.config_records[wire.CONFIG], node(0))
    assert (job.client, job.objective) == (config.client, config.objective)
    sizes = [reply.content.metric_records[wire.METRICS][wire.NUM_EXAMPLES] for reply in replies]
    parts = message_settings.members(config.task, config.partition, config.clients, config.seed)
    assert sizes == [len(part) for part in parts[:3]]


def test_a_client_that_fails_gives_an_error_reply_with_the_reason() -> None:
    grid = LocalGrid(app, CLIENTS)
    bad = message(MessageType.TRAIN, round_config(client=sgd(device="cuda:99")), initial())
    (reply,) = grid.send_and_receive([bad])
    assert reply.has_error()
    assert "client.device = 'cuda:99'" in reply.error.reason


# ---------------------------------------------------------------- mistakes


@pytest.mark.parametrize("wrong", [None, CLIENTS, -1, "0", 1.0, True])
def test_a_bad_partition_id_is_named(wrong: object) -> None:
    with pytest.raises(ConfigError) as caught:
        train(round_config(), context=node(wrong))
    text = str(caught.value)
    assert f"partition-id = {wrong!r}" in text
    assert f"0 to {CLIENTS - 1}" in text
    assert "--node-config" in text


@pytest.mark.parametrize("group", ["client", "objective", "task", "model", "partition"])
def test_an_unknown_name_in_a_message_is_rejected(group: str) -> None:
    config = ConfigRecord({**round_config(), f"{group}.name": "fednlr2"})
    with pytest.raises(ConfigError, match=f"{group}.name = 'fednlr2' is unknown .*same version"):
        train(config, initial())


@pytest.mark.parametrize("lost", ["fc1.weight", "fc2.bias"])
def test_a_missing_array_is_named(lost: str) -> None:
    arrays = {name: array for name, array in initial().items() if name != lost}
    with pytest.raises(ConfigError, match=f'Missing key.*"{lost}"'):
        train(round_config(), arrays)


def test_a_message_without_a_model_is_rejected() -> None:
    with pytest.raises(Exception, match="arrays") as caught:
        app(message("train", round_config(), None), node())
    assert type(caught.value) is not KeyError


def test_an_extra_array_or_a_wrong_shape_is_reported() -> None:
    with pytest.raises(ConfigError, match=r'Unexpected key.*"extra"'):
        train(round_config(), initial() | {"extra": np.zeros(1)})
    with pytest.raises(ConfigError, match=r"fc2\.bias"):
        train(round_config(), initial() | {"fc2.bias": np.zeros(3, dtype=np.float32)})


@pytest.mark.parametrize("table", [RULES, OBJECTIVES], ids=lambda table: table.group)
def test_every_part_can_be_made(table: Table) -> None:
    for name in table:
        made = table.make(table.config(name)())
        assert callable(made.begin) and callable(made.end)


GENERAL = (
    *("app", "stages", "from_message", "combined_methods"),
    *("training/method", "training/loop", "state/saved_states"),
)


@pytest.mark.parametrize("module", GENERAL)
def test_the_general_modules_contain_no_method_names(module: str) -> None:
    names = [*RULES, *OBJECTIVES, *for_server_rules.known()]
    source = (ROOT / f"client_app/{module}.py").read_text().lower()
    plain_words = set() if module == "app" else {"plain"}
    assert not [name for name in names if name not in plain_words and re.search(rf"\b{name}\b", source)]


# ---------------------------------------------------------------- the cost of a client process


@pytest.mark.slow
def test_a_new_process_with_cached_data_imports_only_what_it_uses() -> None:
    """As in a deployment: import the app and train, with the data and the partition in the cache."""
    train(round_config())
    unwanted = [
        *("hydra", "omegaconf", "pandas", "matplotlib", "torchvision", "torch._dynamo", "scipy", "sklearn"),
        *("datasets", "flwr_datasets", "ray", "strategies", "server_app", "lab"),
    ]
    code = (
        "import sys, json; sys.path[:0] = ['tests', 'tests/client_app']\n"
        "from fedstride.flower import identity; identity.set_identity()\n"
        "from client_talk import round_config, train; train(round_config())\n"
        f"print(json.dumps([m for m in {unwanted} if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []


def test_the_reply_can_be_read_in_place() -> None:
    reply = app(message(MessageType.TRAIN, round_config(), initial()), node())
    record = reply.content.array_records[wire.ARRAYS]
    assert all(not array.flags.writeable for array in views(record).values())


@pytest.mark.parametrize("key", [wire.SEED, wire.NUM_CLIENTS, wire.SERVER_ROUND])
@pytest.mark.parametrize("value", ["", "x", "7", 1.5, math.nan, math.inf, True, -1, [1], [], b"1"])
def test_invalid_whole_numbers_are_rejected(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"{key} = .* is not allowed: it must be a whole number of at least 0"):
        train(ConfigRecord({**round_config(), key: value}))


DAMAGED = ArrayRecord({"fc1.weight": Array("float32", (2**40, 2**40), "numpy.ndarray", b"garbage")})
SCAFFOLD = {wire.HALVES: ["scaffold"]}


def records(**changed: ArrayRecord) -> Message:
    """A message for SCAFFOLD, with changed records by name (with __ instead of the dot)."""
    model = initial()
    asked = message(MessageType.TRAIN, round_config(**SCAFFOLD), model, scaffold__control=model)
    for name, record in changed.items():
        asked.content[name.replace("__", ".")] = record
    return asked


def changed(kind: str) -> ArrayRecord:
    """The model's arrays in another dtype."""
    return to_record({name: np.ones(array.shape, kind) for name, array in initial().items()})


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda: records(arrays=DAMAGED), "arrays contains arrays that cannot be read"),
        (
            lambda: records(arrays=ArrayRecord({})),
            "the received model does not fit this client's network: .*fc1.weight",
        ),
        (lambda: records(arrays=changed("U1")), "the received model does not fit this client's network"),
        (lambda: records(scaffold__control=DAMAGED), "scaffold.control contains arrays that cannot be read"),
        (lambda: records(scaffold__other=DAMAGED), "scaffold.other contains arrays that cannot be read"),
        (lambda: records(scaffold__control=changed("U1")), "scaffold.control: 'fc1.weight' has dtype <U1"),
        (lambda: records(scaffold__control=changed("c8")), "scaffold.control: 'fc1.weight' has dtype complex64"),
        (lambda: records(scaffold__control=changed(">f4")), "scaffold.control: 'fc1.weight' has dtype >f4"),
    ],
)
def test_invalid_arrays_are_rejected_with_one_line(asked: Callable[[], Message], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        app(asked(), node())
    assert "\n" not in str(caught.value)


def test_unknown_records_are_not_read() -> None:
    usual = app(records(), node()).content
    many = app(records(**{f"other{i}": DAMAGED for i in range(2000)}), node()).content
    assert list(many) == list(usual)
    assert same(views(many.array_records[wire.ARRAYS]), views(usual.array_records[wire.ARRAYS]))
