"""The client half of 2D-LRD: the number of mini-batches, the rate of each, and the cursor in the data."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from client_talk import fednlr, initial, message, node, round_config, same, sgd, train, two_d_lrd
from flwr.app import MessageType
from torch import nn

from client_app import from_message, stages
from client_app.app import app
from client_app.for_server_rules.two_d_lrd import Half
from client_app.registry import RULES, Training
from client_app.training import batches
from client_app.training.cursor_batches import cursor_of
from client_app.training.method import Received
from fedstride.arrays.named import Arrays
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.tasks.models.tensors import load_arrays, to_arrays

PLAIN = sgd(batch_size=10)  # 100 examples: 10 mini-batches an epoch


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The mini-batches that clients train on, in order."""
    seen: list[list[int]] = []
    whole = stages.train

    def watched(model: nn.Module, examples: object, steps: object, *more: object, **options: object) -> object:
        chosen = list(steps)
        seen.extend(batch.tolist() for batch, _ in chosen)
        return whole(model, examples, chosen, *more, **options)

    monkeypatch.setattr(stages, "train", watched)
    return seen


# ---------------------------------------------------------------- received factors, the cursor


@pytest.mark.parametrize("sent", [[], 0.5, "1.0", ["1.0"], [1.0, -0.1], [float("nan")], [float("inf")], [True]])
def test_factors_must_be_a_list_of_at_least_one(sent: object) -> None:
    job = from_message.read(round_config(client=PLAIN), node())
    with pytest.raises(ConfigError, match=r"two_d_lrd\.rate_factors = .* one or more factors"):
        Half().begin(job, Received("two_d_lrd", {"rate_factors": sent}), {})


def test_factors_that_were_not_sent_are_named() -> None:
    with pytest.raises(ConfigError, match=r"not contain two_d_lrd\.rate_factors, which two_d_lrd needs"):
        train(round_config(**{wire.HALVES: ["two_d_lrd"]}))


@pytest.mark.parametrize(
    ("state", "start"), [({"cursor": 30}, 30), ({}, 8), ({"cursor": "30"}, 8), ({"cursor": -1}, 8)]
)
def test_without_a_cursor_a_client_starts_as_with_full_participation(state: dict, start: int) -> None:
    assert cursor_of(state, server_round=3, count=4) == start


# ---------------------------------------------------------------- through the ClientApp


@pytest.mark.parametrize("count", [1, 3, 10, 23])
def test_a_round_has_one_mini_batch_for_each_factor(count: int, met: list[list[int]]) -> None:
    _, metrics = train(round_config(client=PLAIN, **two_d_lrd([0.9] * count)))
    assert metrics[wire.TRAIN_STEPS] == count
    assert [len(batch) for batch in met] == [10] * count


def test_epochs_continue_over_rounds_and_are_reshuffled(met: list[list[int]]) -> None:
    context = node(3)
    for server_round in range(1, 11):  # 10 rounds of 4: four epochs of ten
        train(round_config(server_round, client=PLAIN, **two_d_lrd([1.0] * 4)), context=context)
    epochs = [list(itertools.chain(*met[i : i + 10])) for i in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_the_cursor_does_not_move_in_rounds_without_the_client(met: list[list[int]]) -> None:
    context = node(3)
    for server_round in (1, 4, 9):
        train(round_config(server_round, client=PLAIN, **two_d_lrd([1.0] * 5)), context=context)
    assert met == [b.tolist() for b in batches.from_cursor(100, 10, 15, 0, seed=1, client=3)]


def test_a_round_with_one_factor_is_one_mini_batch(met: list[list[int]]) -> None:
    context = node(3)
    for server_round, factors in enumerate(([1.0, 0.8, 0.64], [1.0], [1.0]), start=1):
        train(round_config(server_round, client=PLAIN, **two_d_lrd(factors)), context=context)
    assert met == [b.tolist() for b in batches.from_cursor(100, 10, 5, 0, seed=1, client=3)]


def versions(server_round: int, accepted: int, oldest: int = 0) -> dict[str, object]:
    return {wire.RUN: "0123456789abcdef", wire.ACCEPTED: accepted, wire.OLDEST: oldest}


def test_the_cursor_continues_from_the_last_accepted_round(met: list[list[int]]) -> None:
    """Rounds 1 (4 mini-batches), 2 (5, rejected), 6 (3, in a fresh process)."""
    for server_round, accepted, count in ((1, 0, 4), (2, 1, 5), (6, 1, 3)):
        config = round_config(
            server_round, client=PLAIN, **two_d_lrd([1.0] * count), **versions(server_round, accepted)
        )
        reply = app(message(MessageType.TRAIN, config, initial()), node(3))
        assert list(reply.content) == [wire.ARRAYS, wire.METRICS]
        assert reply.content.metric_records[wire.METRICS][wire.done("two_d_lrd")] == 1
    whole = [b.tolist() for b in batches.from_cursor(100, 10, 9, 0, seed=1, client=3)]
    assert met == whole + whole[4:7]


def several(rounds: int, *, forget: bool, count: int = 7) -> Arrays:
    model, context = initial(), node(2)
    for server_round in range(1, rounds + 1):
        context = node(2) if forget else context
        factors = [1.0, 0.5] + [0.25] * (count - 2)
        model, _ = train(round_config(server_round, client=PLAIN, **two_d_lrd(factors)), model, context)
    return model


def test_a_lost_state_gives_the_unbroken_bits_under_full_participation() -> None:
    assert same(several(4, forget=True), several(4, forget=False))


def by_hand(factors: list[float], config: Training, cursor: int = 0) -> Arrays:
    """Client 0's round, computed step by step with torch's gradients and the rate of each step."""
    config_record = round_config(client=config)
    job = from_message.read(config_record, node(0))
    load_arrays(job.model, initial())
    rates = [1.0] * len(list(job.model.parameters()))
    if config.name == "fednlr":
        found = RULES.make(config).begin(job, Received("fednlr"), {}).factors
        rates = [found.get(i, 1.0) for i in range(len(rates))]
    for factor, batch in zip(
        factors, batches.from_cursor(100, config.batch_size, len(factors), cursor, seed=1, client=0), strict=True
    ):
        x, y = job.examples.batch(batch)
        gradients = torch.autograd.grad(nn.functional.cross_entropy(job.model(x), y), job.model.parameters())
        with torch.no_grad():
            for w, g, rate in zip(job.model.parameters(), gradients, rates, strict=True):
                w.sub_(config.lr * factor * (rate * g))
    return to_arrays(job.model)


def near(a: Arrays, b: Arrays) -> None:
    for name, array in a.items():
        np.testing.assert_allclose(array, b[name], rtol=1e-5, atol=1e-6)


def test_the_rate_of_step_j_is_multiplied_by_factor_j() -> None:
    factors = [1.0, 0.6, 0.36, 0.216]
    model, _ = train(round_config(client=PLAIN, **two_d_lrd(factors)))
    near(model, by_hand(factors, PLAIN))


def test_factors_multiply_fednlrs_rates() -> None:
    config = fednlr(batch_size=10)
    factors = [1.0, 0.6, 0.36]
    model, metrics = train(round_config(client=config, **two_d_lrd(factors)))
    near(model, by_hand(factors, config))
    plain, _ = train(round_config(client=PLAIN, **two_d_lrd(factors)))
    assert not np.allclose(model["fc1.weight"], plain["fc1.weight"], atol=1e-6)
    assert metrics["fednlr/rate_mean/fc1"] == pytest.approx(config.lr)  # of eta, before the step's factor


def test_no_attenuation_is_plain_local_sgd_with_local_steps() -> None:
    steps = sgd(batch_size=10, local_steps=6)
    model, context, other, its = initial(), node(1), initial(), node(1)
    for server_round in (1, 2, 3):
        model, _ = train(round_config(server_round, client=PLAIN, **two_d_lrd([1.0] * 6)), model, context)
        other, _ = train(round_config(server_round, client=steps), other, its)
        assert same(model, other)
