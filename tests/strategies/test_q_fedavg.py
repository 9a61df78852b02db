"""q-FedAvg at the server: the pure step, the strategy, and Flower's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import federation as fed
import flwr.serverapp.strategy as flwr
import numpy as np
import pytest
import reference as ref
from federation import OPEN, UNIFORM
from flwr.app import Message
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from fedstride.arrays.named import views
from fedstride.errors import ConfigError
from fedstride.messages import wire
from strategies import DifferentialPrivacy, QFedAvg, fedavg, q_fedavg

SENT: Model = {"w": np.array([1.0, -2.0])}  # the toy problem T1
CLIENTS: list[Model] = [{"w": np.array([0.8, -1.5])}, {"w": np.array([0.6, -2.1])}]


def oracle(sent: Model, clients: Sequence[Model], losses: Sequence[float], q: float, eta: float) -> Model:
    """(QF2), (QF3) as they stand."""
    L, names = 1.0 / eta, ref.parameters(sent)
    above, below = {n: np.zeros(sent[n].shape) for n in names}, 0.0
    for w_k, loss in zip(clients, losses, strict=True):
        F = loss + 1e-10
        G = {n: -L * (ref.f64(w_k[n]) - ref.f64(sent[n])) for n in names}
        above = {n: above[n] + F**q * G[n] for n in names}
        below += q * F ** (q - 1.0) * sum(float((g**2).sum()) for g in G.values()) + L * F**q
    shares = [1.0 / len(clients)] * len(clients)
    step = {n: -above[n] / below for n in names}
    return ref.build(sent, step, ref.average_buffers(sent, clients, shares))


def replies(message: Message, models: Sequence[Model], losses: Sequence[Any]) -> list[Message]:
    return [
        fed.reply_with("q_fedavg/loss", loss, message, node, w_k, 10 * node)
        for node, (w_k, loss) in enumerate(zip(models, losses, strict=True), 1)
    ]


# ---------------------------------------------------------------- the worked example T1


@pytest.mark.parametrize(
    ("q", "h", "returned"),
    [
        (0.0, 20.0, [0.7, -1.8]),
        (1.0, 49.0 + 22.0, [0.9154929577, -1.8661971831]),
        (2.0, 156.0 + 19.5, [0.9487179487, -1.8874643875]),
    ],
)
def test_worked(q: float, h: float, returned: list[float]) -> None:
    model, total = q_fedavg.aggregate(SENT, CLIENTS, [2.0, 0.5], q=q, rate=0.1)
    assert model["w"] == pytest.approx(returned, abs=1e-9)
    assert total == pytest.approx(h, abs=1e-7)  # the floor of the losses


# ---------------------------------------------------------------- against the oracle and Flower


@pytest.mark.parametrize("q", [0.0, 0.1, 1.0, 3.0])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounds_with_other_clients_each_time(dtype: str, q: float) -> None:
    """And with another rate in each round."""
    start = fed.make_model(dtype)
    strategy = QFedAvg(client_lr=0.5, client_lr_decay=0.8, q=q, **OPEN)
    model, expected = start, fed.widened(start)
    for number, who in enumerate(([0, 1], [1, 2], [0, 2], [2], [0, 1, 2]), 1):
        losses = [0.3 + 0.9 * k + 0.1 * number for k in who]
        message = fed.configure(strategy, number, model)[0]
        models = [fed.noisy()(fed.model_in(message), number)[k] for k in who]
        record, _ = strategy.aggregate_train(number, replies(message, models, losses)[::-1])
        clients = [fed.noisy()(expected, number)[k] for k in who]
        expected = oracle(expected, clients, losses, q, 0.5 * 0.8 ** (number - 1))
        model = views(record)
        fed.assert_close(model, expected, start)


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.0, 0.2, 1.0, 5.0])
def test_flowers_own_gives_the_same_parameters(q: float) -> None:
    start = fed.only_parameters(fed.make_model(np.float64))
    model, losses = start, [0.4, 1.3, 2.2]
    for number in (1, 2):  # Flower's takes seconds for each
        ours, flowers = QFedAvg(client_lr=0.05, q=q, **OPEN), flwr.QFedAvg(client_learning_rate=0.05, q=q, **OPEN)
        message = fed.configure(ours, 1, model)[0]
        fed.configure(flowers, 1, model)
        arrived = replies(message, fed.noisy()(model, number), losses)
        for reply, loss in zip(arrived, losses, strict=True):
            reply.content[wire.METRICS]["train_loss"] = loss
        record, _ = ours.aggregate_train(1, arrived)
        theirs, _ = flowers.aggregate_train(1, arrived)
        assert record is not None and theirs is not None
        fed.assert_close(views(record), views(theirs), start, 1e-9)
        model = views(record)


# ---------------------------------------------------------------- identities


@fed.PROPERTY
@given(fed.cohorts(m=4), st.floats(1e-4, 10.0), st.lists(st.floats(0.0, 100.0), min_size=4, max_size=4))
def test_q_zero_is_uniform_fedavg_whatever_the_rate(
    cohort: fed.AnyCohort, rate: float, losses: list[float]
) -> None:
    sent, clients, _ = cohort
    model, _ = q_fedavg.aggregate(sent, clients, losses, q=0.0, rate=rate)
    assert fed.bits(model) == fed.bits(fedavg.aggregate(sent, clients, [0.25] * 4))


@fed.PROPERTY
@given(fed.cohorts(m=3), st.floats(0.0, 5.0), st.floats(0.01, 10.0))
def test_equal_losses_give_the_direction_of_the_uniform_mean(cohort: fed.AnyCohort, q: float, loss: float) -> None:
    sent, clients, _ = cohort
    model, _ = q_fedavg.aggregate(sent, clients, [loss] * 3, q=q, rate=0.1)
    mean = fedavg.aggregate(sent, clients, UNIFORM)
    step, whole = (np.concatenate([(end[n] - sent[n]).ravel() for n in sent]) for end in (model, mean))
    assert step @ whole == pytest.approx(np.linalg.norm(step) * np.linalg.norm(whole), rel=1e-9, abs=1e-12)


def test_with_large_losses_the_result_is_the_mean_weighted_by_their_powers() -> None:
    losses = np.array([2.0, 0.5])
    model, _ = q_fedavg.aggregate(SENT, CLIENTS, list(1e11 * losses), q=2.0, rate=0.1)
    share = losses**2 / (losses**2).sum()
    assert model["w"] == pytest.approx(share[0] * CLIENTS[0]["w"] + share[1] * CLIENTS[1]["w"], rel=1e-9)


@pytest.mark.parametrize("q", [0.0, 1.0, 20.0])
@pytest.mark.parametrize("loss", [0.0, 1e-10, 1e12])
def test_losses_at_the_bounds_are_finite(q: float, loss: float) -> None:
    model, _ = q_fedavg.aggregate(SENT, CLIENTS, [loss, loss], q=q, rate=0.1)
    assert np.isfinite(model["w"]).all()


@fed.PROPERTY
@given(fed.cohorts(m=3), st.permutations(range(3)), st.floats(0.0, 5.0))
def test_the_order_of_clients_does_not_matter(cohort: fed.AnyCohort, order: list[int], q: float) -> None:
    sent, clients, _ = cohort
    losses = [0.2, 1.0, 3.0]
    one, _ = q_fedavg.aggregate(sent, clients, losses, q=q, rate=0.1)
    other, _ = q_fedavg.aggregate(sent, [clients[k] for k in order], [losses[k] for k in order], q=q, rate=0.1)
    fed.assert_close(other, one, sent, 1e-9)


def test_buffers_are_averaged_without_weights() -> None:
    start = fed.make_model()
    done = fed.play(QFedAvg(client_lr=0.1, **OPEN), 1, start, fed.noisy())
    want = ref.average_buffers(start, fed.noisy()(start, 1), UNIFORM)
    assert done.returned is not None and len(want) == 4
    fed.assert_close({n: done.returned[n] for n in want}, want, {n: start[n] for n in want})


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("loss", [None, -0.1, np.nan, np.inf, [0.5]])
def test_a_reply_without_a_valid_loss_is_rejected(loss: Any) -> None:
    strategy = QFedAvg(client_lr=0.1, **OPEN)
    message = fed.configure(strategy, 1, SENT)[0]
    record, metrics = strategy.aggregate_train(1, replies(message, [*CLIENTS, CLIENTS[0]], [2.0, 0.5, loss]))
    assert metrics["screening/rejected"] == 1
    assert views(record)["w"] == pytest.approx([0.9154929577, -1.8661971831], abs=1e-9)


def test_privacy_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"privacy would not protect q_fedavg/loss"):
        DifferentialPrivacy(QFedAvg(client_lr=0.1, **OPEN))
