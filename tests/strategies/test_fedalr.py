"""Fedalr, the pure function and the strategy."""

from __future__ import annotations

import math
from typing import Any, get_args

import federation as fed
import numpy as np
import pytest
import reference as ref
from federation import OPEN, Expected, printed
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from strategies import Fedalr, fedalr
from strategies.fedalr import FedalrState, Scale
from strategies.replies.screening_settings import Screening


class Oracle:
    def __init__(self, scale: str, server_lr: float) -> None:
        self.rule = ref.Fedalr(scale, server_lr)

    def __call__(self, sent: Model, clients: Any) -> Expected:
        got = self.rule.round(sent, clients)
        eta = got["eta"]
        reported = {
            "fedalr/eta": eta,
            "fedalr/eta_min": min(eta),
            "fedalr/eta_max": max(eta),
            "fedalr/eta_mean": sum(eta) / len(eta),
            "fedalr/c": got["c"],
            "fedalr/cosine": got["cosine"],
            "fedalr/G": got["G_norm"],
            "fedalr/step": got["step"],
            "fedalr/client": sorted(fed.NODES),
        }
        return Expected(got["model"], got["model"], reported)


# ---------------------------------------------------------------- against the oracle


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("scale", get_args(Scale))
def test_five_rounds_agree_with_the_oracle(dtype: str, scale: str) -> None:
    fed.follow(Fedalr(scale=scale, server_lr=0.5, **OPEN), fed.make_model(dtype), Oracle(scale, 0.5))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", get_args(Scale))
def test_five_pure_steps_agree_with_the_oracle(dtype: str, scale: str) -> None:
    sent = start = fed.make_model(dtype)
    expected, oracle, state = fed.widened(start), Oracle(scale, 0.5), FedalrState()
    for t in range(1, 6):
        done = fedalr.aggregate(sent, fed.noisy()(sent, t), state, scale=scale, server_lr=0.5)
        want = oracle(expected, fed.noisy()(expected, t))
        fed.assert_close(done.model, want.returned, start)
        near = {"abs": fed.TOLERANCE[dtype]}
        assert done.rates == pytest.approx(want.metrics["fedalr/eta"], **near)
        assert done.products == pytest.approx(want.metrics["fedalr/c"], **near)
        assert done.cosines == pytest.approx(want.metrics["fedalr/cosine"], **near)
        assert done.gradient_norm == pytest.approx(want.metrics["fedalr/G"], **near)
        assert done.step_norm == pytest.approx(want.metrics["fedalr/step"], **near)
        assert list(done.state.gradient or {}) == ref.parameters(start)
        assert done.state.aggregated == t
        sent, expected, state = done.model, want.returned, done.state


# ---------------------------------------------------------------- the worked round


def test_worked_round_unit() -> None:
    done = fed.play(Fedalr(**OPEN), 1, fed.WORKED, fed.worked)
    assert done.metrics["fedalr/eta"] == printed([0.4995305513, 0.4700688899, 0.5651899423])
    assert done.metrics["fedalr/step"] == printed(0.2984751291)
    assert done.returned is not None
    assert done.returned["a.weight"][0] == printed([1.0176925892, -1.9307311152])


def test_worked_round_mean_norm() -> None:
    done = fed.play(Fedalr(scale="mean_norm", **OPEN), 1, fed.WORKED, fed.worked)
    assert done.metrics["fedalr/step"] == printed(0.1276357947)
    assert done.returned is not None
    assert done.returned["a.weight"][0] == printed([1.0075658152, -1.9703788078])


# ---------------------------------------------------------------- what a round is


def test_the_returned_model_is_sent_next() -> None:
    first, second = fed.rounds(Fedalr(**OPEN), fed.make_model(), fed.noisy(), [1, 2])
    assert first.returned is not None
    assert fed.bits(second.sent) == fed.bits(first.returned)


def test_clients_are_told_by_their_ids() -> None:
    strategy, model = Fedalr(**OPEN), fed.make_model()
    fed.configure(strategy, 1, model)
    replies = [
        fed.reply(node, w_k, 10, {"client-id": client})
        for node, w_k, client in zip((1, 2, 3), fed.noisy()(model, 1), (30, 10, 20), strict=True)
    ]
    _, metrics = strategy.aggregate_train(1, replies)
    assert metrics is not None
    assert metrics["fedalr/client"] == [10, 20, 30]


def test_only_aggregated_rounds_count() -> None:
    """A2-3: a skipped round changes neither t nor G."""
    with_gap, without = (
        Fedalr(screening=Screening(quorum=2), **OPEN),
        Fedalr(screening=Screening(quorum=2), **OPEN),
    )
    first = fed.play(with_gap, 1, fed.make_model(), fed.noisy())
    fed.play(without, 1, fed.make_model(), fed.noisy())
    assert first.returned is not None
    skipped = fed.play(with_gap, 2, first.returned, fed.noisy(), arrange=lambda replies: replies[:1])
    assert skipped.returned is None
    got = [fed.play(strategy, 3, first.returned, fed.noisy()) for strategy in (with_gap, without)]
    assert got[0].returned is not None and got[1].returned is not None
    assert fed.bits(got[0].returned) == fed.bits(got[1].returned)
    assert with_gap.state.aggregated == 2


def test_examples_never_matter() -> None:
    """A2-4: 1/m, in buffers too."""
    sent = fed.make_model(np.float64)
    clients = fed.noisy()(sent, 1)
    returned = []
    for examples in ((1, 1, 1), (1, 100, 10000)):
        strategy = Fedalr(**OPEN)
        fed.configure(strategy, 1, sent)
        replies = [fed.reply(n, w_k, e) for n, w_k, e in zip((1, 2, 3), clients, examples, strict=True)]
        record, _ = strategy.aggregate_train(1, replies)
        assert record is not None
        returned.append(fed.bits({name: array.numpy() for name, array in record.items()}))
    assert returned[0] == returned[1]


def test_a_client_that_did_not_move_counts() -> None:
    """A2-5."""
    sent = {"a": np.array([0.0, 0.0])}
    clients = [{"a": np.array([0.0, 2.0])}, dict(sent)]
    done = fedalr.aggregate(sent, clients, FedalrState())
    assert done.products == [0.5, 0.0]  # G = u_1 / 2
    assert done.cosines == [1.0, 0.0]
    assert done.rates == pytest.approx([math.exp(-0.5), math.exp(-1.0)])
    assert done.model["a"] == pytest.approx([0.0, math.exp(-0.5) / 2])


def test_nobody_moves() -> None:
    start = fed.make_model()
    done = fed.play(Fedalr(**OPEN), 1, start, fed.idle)
    assert done.returned is not None
    assert fed.bits(done.returned) == fed.bits(start)
    assert done.metrics["fedalr/G"] == 0.0
    assert done.metrics["fedalr/eta"] == [math.exp(-1.0)] * 3
    assert done.metrics["fedalr/cosine"] == [0.0] * 3


def test_opposing_clients_cancel() -> None:
    sent = {"a": np.array([1.0, 1.0])}
    done = fedalr.aggregate(sent, [{"a": np.array([2.0, 1.0])}, {"a": np.array([0.0, 1.0])}], FedalrState())
    assert (done.gradient_norm, done.step_norm, done.cosines) == (0.0, 0.0, [0.0, 0.0])
    assert done.model["a"].tolist() == [1.0, 1.0]


# ---------------------------------------------------------------- identities


@fed.PROPERTY
@given(fed.cohorts(), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_rates_and_gradient_keep_their_ranges(cohort: fed.AnyCohort, t: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    before = {name: rng.normal(size=array.shape) for name, array in cohort.sent.items()}
    length = ref.norm(before, list(before))
    state = FedalrState({n: a / length for n, a in before.items()}, t - 1)
    done = fedalr.aggregate(cohort.sent, cohort.clients, state)
    assert done.gradient_norm <= 1.0 + 1e-12
    assert all(math.exp(-2.0) - 1e-12 <= eta <= 1.0 + 1e-12 for eta in done.rates)
    assert all(-1.0 - 1e-12 <= cosine <= 1.0 + 1e-12 for cosine in done.cosines)
    assert done.step_norm <= 1.0 + 1e-12  # A2-1: at most server_lr


@fed.PROPERTY
@given(fed.cohorts(m=1))
def test_one_client_in_round_one_steps_by_its_unit_vector(cohort: fed.AnyCohort) -> None:
    done = fedalr.aggregate(cohort.sent, cohort.clients, FedalrState())
    update = ref.difference(cohort.clients[0], cohort.sent)
    length = ref.norm(update, list(update))
    if length == 0.0:
        assert fed.bits(done.model) == fed.bits(cohort.sent)
        return
    assert (done.products, done.rates) == (pytest.approx([1.0]), pytest.approx([1.0]))
    for name, array in cohort.sent.items():
        np.testing.assert_allclose(done.model[name], array + update[name] / length, rtol=0, atol=1e-12)


@fed.PROPERTY
@given(fed.cohorts(), st.sampled_from([0.125, 0.5, 4.0, 64.0]))
def test_one_clients_scale_does_not_matter_under_unit(cohort: fed.AnyCohort, c: float) -> None:
    sent, clients, _ = cohort
    longer = {name: sent[name] + c * (clients[0][name] - sent[name]) for name in sent}
    got, want = (fedalr.aggregate(sent, [first, *clients[1:]], FedalrState()) for first in (longer, clients[0]))
    fed.assert_close(got.model, want.model, sent, 1e-12)
    assert got.rates == pytest.approx(want.rates, rel=1e-12)


@fed.PROPERTY
@given(fed.cohorts(m=1), st.integers(1, 4))
def test_identical_clients_that_go_on_the_same_way_have_rate_one(cohort: fed.AnyCohort, m: int) -> None:
    update = ref.difference(cohort.clients[0], cohort.sent)
    sent, state = cohort.sent, FedalrState()
    for _ in range(3):
        client = {name: sent[name] + update[name] for name in sent}
        done = fedalr.aggregate(sent, [client] * m, state)
        moved = ref.norm(update, list(update)) > 0.0
        assert done.rates == pytest.approx([1.0 if moved else math.exp(-1.0)] * m, rel=1e-9)
        sent, state = done.model, done.state


def test_identical_clients_in_every_round_have_rate_one_through_the_strategy() -> None:
    start = fed.only_parameters(fed.make_model(np.float64))
    step = ref.difference(fed.noisy()(start, 1)[0], start)

    def train(sent: Model, server_round: int) -> list[Model]:
        return [{name: array + step[name] for name, array in sent.items()}] * 3

    for done in fed.rounds(Fedalr(**OPEN), start, train):
        assert done.metrics["fedalr/eta"] == pytest.approx([1.0] * 3, rel=1e-12)
        assert done.metrics["fedalr/G"] == pytest.approx(1.0, rel=1e-12)


def test_mean_norm_has_the_direction_of_unit() -> None:
    sent = fed.make_model(np.float64)
    clients = fed.noisy()(sent, 1)
    unit, scaled = (fedalr.aggregate(sent, clients, FedalrState(), scale=scale) for scale in ("unit", "mean_norm"))
    mean = sum(ref.norm(ref.difference(w_k, sent), ref.parameters(sent)) for w_k in clients) / 3
    assert scaled.step_norm == pytest.approx(mean * unit.step_norm, rel=1e-12)
    for name in ref.parameters(sent):
        np.testing.assert_allclose(
            scaled.model[name] - sent[name], mean * (unit.model[name] - sent[name]), rtol=0, atol=1e-12
        )


# ---------------------------------------------------------------- torch


@pytest.mark.parametrize("scale", get_args(Scale))
def test_torch_tensors_give_the_same_numbers(scale: str) -> None:
    sent = fed.make_model(np.float64)
    torch_sent, state, torch_state = fed.to_torch(sent), FedalrState(), FedalrState()
    for t in (1, 2):
        clients = fed.noisy()(sent, t)
        want = fedalr.aggregate(sent, clients, state, scale=scale)
        torch_clients = [fed.to_torch(client) for client in clients]
        got = fedalr.aggregate(torch_sent, torch_clients, torch_state, scale=scale)
        fed.assert_same_numbers(got.model, want.model)
        fed.assert_same_numbers(got.state.gradient or {}, want.state.gradient or {})
        assert got.state.aggregated == want.state.aggregated == t
        assert got.rates == pytest.approx(want.rates, rel=1e-12)
        sent, state, torch_sent, torch_state = want.model, want.state, got.model, got.state
