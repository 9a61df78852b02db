"""The client's part of 2D-LRD: so many mini-batches, the rate of each, and where it stands in its data."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from client_talk import initial, message, node, same, told, train
from flwr.app import ConfigRecord, MessageType, RecordDict
from torch import nn

from client_app import app as client
from client_app import batches, work
from client_app.app import app
from client_app.rules import fednlr
from client_app.rules.two_d_lrd import factors_of, take_cursor
from fedstride import wire
from fedstride.arrays import Arrays
from fedstride.errors import ConfigError
from fedstride.schema import ClientConfig, FedNLRConfig
from fedstride.tasks.tensors import load_arrays, to_arrays

PLAIN = ClientConfig(device="cpu", batch_size=10)  # 100 examples: 10 mini-batches an epoch


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The mini-batches that clients really train on, as they come."""
    seen: list[list[int]] = []
    whole = client.train

    def watched(model: nn.Module, examples: object, positions: object, **options: object) -> object:
        chosen = [np.asarray(batch) for batch in positions]
        seen.extend(batch.tolist() for batch in chosen)
        return whole(model, examples, iter(chosen), **options)

    monkeypatch.setattr(client, "train", watched)
    return seen


# ---------------------------------------------------------------- the factors


def test_rounds_count_epochs_unless_told_otherwise() -> None:
    assert factors_of({}, ClientConfig()) is None


def test_local_steps_are_so_many_factors_of_one() -> None:
    assert factors_of({}, ClientConfig(local_steps=3)) == [1.0, 1.0, 1.0]


def test_factors_that_were_sent_win() -> None:
    assert factors_of({wire.RATE_FACTORS: [1.0, 0.5]}, ClientConfig(local_steps=7)) == [1.0, 0.5]


@pytest.mark.parametrize("sent", [[], 0.5, "1.0"])
def test_factors_must_be_a_list_of_at_least_one(sent: object) -> None:
    with pytest.raises(ConfigError, match=r"rate-factors = .* at least one factor"):
        factors_of({wire.RATE_FACTORS: sent}, ClientConfig())


# ---------------------------------------------------------------- the cursor


def test_cursor_moves_past_its_mini_batches() -> None:
    state = RecordDict()
    rounds = ((1, 4), (2, 4), (3, 1), (9, 2))
    assert [take_cursor(RecordDict(), state, r, count) for r, count in rounds] == [0, 4, 8, 9]
    assert dict(state.config_records[wire.STATE]) == {"cursor": 11}


def test_a_lost_cursor_is_where_full_participation_would_stand() -> None:
    assert take_cursor(RecordDict(), RecordDict(), 5, 3) == 12


def kept(cursor: object) -> RecordDict:
    return RecordDict({wire.STATE: ConfigRecord({"cursor": cursor})})


@pytest.mark.parametrize(
    ("told_", "own", "start"),
    [
        (kept(30), kept(40), 30),  # the server accepted less than the client did
        (kept(30), RecordDict(), 30),
        (RecordDict(), kept(40), 40),
        (kept("30"), kept(40), 40),  # no number: as if it were not there
        (RecordDict({wire.STATE: ConfigRecord({})}), RecordDict(), 8),
    ],
)
def test_what_the_server_hands_back_comes_first(told_: RecordDict, own: RecordDict, start: int) -> None:
    assert take_cursor(told_, own, 3, 4) == start
    assert dict(own.config_records[wire.STATE]) == {"cursor": start + 4}


# ---------------------------------------------------------------- through the ClientApp


@pytest.mark.parametrize("count", [1, 3, 10, 23])
def test_a_round_is_exactly_so_many_mini_batches(count: int, met: list[list[int]]) -> None:
    _, metrics = train(told(client=PLAIN, rate_factors=[0.9] * count))
    assert metrics[wire.TRAIN_STEPS] == count
    assert [len(batch) for batch in met] == [10] * count


def test_epochs_go_on_over_rounds_and_are_reshuffled(met: list[list[int]]) -> None:
    context = node(3)
    for server_round in range(1, 11):  # 10 rounds of 4: four epochs of ten
        train(told(server_round, client=PLAIN, rate_factors=[1.0] * 4), context=context)
    epochs = [list(itertools.chain(*met[i : i + 10])) for i in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(100)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_the_cursor_waits_while_a_client_does_not_take_part(met: list[list[int]]) -> None:
    context = node(3)
    for server_round in (1, 4, 9):
        train(told(server_round, client=PLAIN, rate_factors=[1.0] * 5), context=context)
    assert met == [b.tolist() for b in batches.from_cursor(100, 10, 15, 0, seed=1, client=3)]


def test_after_the_switch_a_round_is_one_mini_batch(met: list[list[int]]) -> None:
    context = node(3)
    for server_round, factors in enumerate(([1.0, 0.8, 0.64], [1.0], [1.0]), start=1):
        train(told(server_round, client=PLAIN, rate_factors=factors), context=context)
    assert met == [b.tolist() for b in batches.from_cursor(100, 10, 5, 0, seed=1, client=3)]


def test_the_state_travels_with_the_reply_and_back(met: list[list[int]]) -> None:
    config = told(1, client=PLAIN, rate_factors=[1.0] * 4)
    first = app(message(MessageType.TRAIN, config, initial()), node(3))
    state = first.content.config_records[wire.STATE]
    assert dict(state) == {"cursor": 4}
    second = message(MessageType.TRAIN, told(7, client=PLAIN, rate_factors=[1.0] * 3), initial())
    second.content[wire.STATE] = state
    app(second, node(3))  # a fresh process
    assert met == [b.tolist() for b in batches.from_cursor(100, 10, 7, 0, seed=1, client=3)]


def several(rounds: int, *, forget: bool, count: int = 7) -> Arrays:
    model, context = initial(), node(2)
    for server_round in range(1, rounds + 1):
        context = node(2) if forget else context
        factors = [1.0, 0.5] + [0.25] * (count - 2)
        model, _ = train(told(server_round, client=PLAIN, rate_factors=factors), model, context)
    return model


def test_a_lost_state_gives_the_unbroken_bits_under_full_participation() -> None:
    assert same(several(4, forget=True), several(4, forget=False))


def by_hand(factors: list[float], config: ClientConfig, cursor: int = 0) -> Arrays:
    """Client 0's round with torch's own SGD, its rate set before every step."""
    told_ = told(client=config)
    job = work.read(told_, node(0))
    load_arrays(job.model, initial())
    rates = [1.0] * len(list(job.model.parameters()))
    if isinstance(config, FedNLRConfig):
        found, _ = fednlr.make(config)(job.model, job.examples, config.lr)
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


def test_step_j_goes_at_the_rate_times_factor_j() -> None:
    factors = [1.0, 0.6, 0.36, 0.216]
    model, _ = train(told(client=PLAIN, rate_factors=factors))
    near(model, by_hand(factors, PLAIN))


def test_factors_multiply_fednlrs_rates() -> None:
    config = FedNLRConfig(device="cpu", batch_size=10)
    factors = [1.0, 0.6, 0.36]
    model, metrics = train(told(client=config, rate_factors=factors))
    near(model, by_hand(factors, config))
    plain, _ = train(told(client=PLAIN, rate_factors=factors))
    assert not np.allclose(model["fc1.weight"], plain["fc1.weight"], atol=1e-6)
    assert metrics["fednlr/rate_mean/fc1"] == pytest.approx(config.lr)  # of eta, before the step's factor


def test_no_attenuation_is_plain_local_sgd_with_local_steps() -> None:
    steps = ClientConfig(device="cpu", batch_size=10, local_steps=6)
    model, context, other, its = initial(), node(1), initial(), node(1)
    for server_round in (1, 2, 3):
        model, _ = train(told(server_round, client=PLAIN, rate_factors=[1.0] * 6), model, context)
        other, _ = train(told(server_round, client=steps), other, its)
        assert same(model, other)
