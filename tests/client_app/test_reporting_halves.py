"""The client halves that only report numbers: FedNova's effective steps, q-FedAvg's loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from client_talk import fednlr, fedprox, initial, node, round_config, same, sgd, train, two_d_lrd
from hypothesis import given, settings
from hypothesis import strategies as st

from client_app import from_message
from client_app.for_server_rules.fednova import Half, effective_steps
from client_app.training.method import Plan, Result
from fedstride.messages import wire
from fedstride.tasks.models.tensors import load_arrays

NOVA = {wire.HALVES: ["fednova"]}
FAIR = {wire.HALVES: ["q_fedavg"]}


@pytest.mark.parametrize(("tau", "rho", "a"), [(2, 0.9, 2.9), (5, 0.9, 13.1441), (2, 0.0, 2.0), (5, 0.0, 5.0)])
def test_effective_steps_with_momentum(tau: int, rho: float, a: float) -> None:
    assert effective_steps([1.0] * tau, momentum=rho) == pytest.approx(a, abs=1e-9)


@pytest.mark.parametrize(("tau", "a"), [(2, 1.95), (5, 4.52438125)])
def test_effective_steps_with_a_proximal_term(tau: int, a: float) -> None:
    assert effective_steps([1.0] * tau, pull=0.05) == pytest.approx(a, abs=1e-9)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 60), st.floats(0.0, 0.95))
def test_the_recurrence_is_the_sum_over_steps(tau: int, rho: float) -> None:
    """(NO1) = sum over j of (1 - rho^j) / (1 - rho)."""
    want = sum((1.0 - rho**j) / (1.0 - rho) for j in range(1, tau + 1))
    assert effective_steps([1.0] * tau, momentum=rho) == pytest.approx(want, rel=1e-9)


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=20),
    st.floats(0.0, 0.95),
    st.floats(0.0, 1.0),
    st.floats(-3.0, 3.0).filter(lambda g: abs(g) > 1e-3),
)
def test_it_is_how_often_a_constant_gradient_is_in_the_update(
    factors: list[float], rho: float, mu: float, g: float
) -> None:
    """SGD on a linear loss with the penalty inside the gradient: w^t - w_k = eta a_k g."""
    eta, w, v = 0.1, 0.0, 0.0
    for factor in factors:
        v = rho * v + g + mu * w
        w -= eta * factor * v
    assert -w == pytest.approx(
        eta * g * effective_steps(factors, momentum=rho, pull=eta * mu), rel=1e-9, abs=1e-12
    )


@pytest.mark.parametrize(
    ("client", "objective", "more", "a"),
    [
        (sgd(local_epochs=2, batch_size=40), None, {}, 6.0),
        (fednlr(local_epochs=2, batch_size=40), None, {}, 6.0),
        (sgd(batch_size=50, momentum=0.9), None, {}, 2.9),
        (sgd(batch_size=50, lr=0.1), fedprox(0.5), {}, 1.95),
        (sgd(batch_size=50, lr=0.2, lr_decay=0.5), fedprox(0.5), {"round": 2}, 1.95),
    ],
)
def test_what_a_client_reports(client, objective, more, a) -> None:  # type: ignore[no-untyped-def]
    config = round_config(more.get("round", 1), client=client, objective=objective, **NOVA)
    model, metrics = train(config)
    assert metrics["fednova/a"] == pytest.approx(a, abs=1e-12)
    assert metrics[wire.done("fednova")] == 1
    plain, _ = train(round_config(more.get("round", 1), client=client, objective=objective))
    assert same(model, plain)


def test_rates_that_vary_within_the_round() -> None:
    asked = two_d_lrd([1.0, 0.5, 0.25]) | {wire.HALVES: ["fednova", "two_d_lrd"]}
    _, metrics = train(round_config(client=sgd(batch_size=20, momentum=0.5), **asked))
    assert metrics["fednova/a"] == pytest.approx(1.0 + 0.5 * 1.5 + 0.25 * 1.75, abs=1e-12)


def test_only_steps_that_were_taken_count() -> None:
    """A node with a smallest number of rows joins a step to the one before it, at the rate of that one."""
    job = from_message.read(round_config(client=sgd(lr=0.1)), node())
    plan = Plan(step_factors=[1.0, 0.8, 0.64])
    returned, _ = Half().end(job, plan, Result(0.0, 0.0, [0.1, 0.1 * 0.64]))
    assert returned.metrics["fednova/a"] == pytest.approx(1.64, abs=1e-12)


def test_the_loss_is_that_of_the_received_model_on_all_training_examples() -> None:
    config = round_config(client=sgd(local_epochs=3, batch_size=10), **FAIR)
    start = initial()
    model, metrics = train(config, start)
    job = from_message.read(config, node())
    load_arrays(job.model, start)
    x, y = job.examples.batch(np.arange(len(job.examples)))
    with torch.no_grad():
        want = torch.nn.functional.cross_entropy(job.model.eval()(x).double(), y)
    assert metrics["q_fedavg/loss"] == pytest.approx(float(want), rel=1e-12)
    assert metrics["q_fedavg/loss"] > metrics[wire.TRAIN_LOSS]
    plain, _ = train(round_config(client=sgd(local_epochs=3, batch_size=10)), start)
    assert same(model, plain)  # the pass changes nothing


def test_counts_of_labels_are_those_of_the_training_examples() -> None:
    job = from_message.read(round_config(), node())
    _, metrics = train(round_config(holdout=0.25, **{wire.HALVES: ["feddisco"]}))
    counts = metrics["feddisco/labels"]
    assert len(counts) == 10 and sum(counts) == metrics[wire.NUM_EXAMPLES] < 100
    _, all_of_them = train(round_config(**{wire.HALVES: ["feddisco"]}))
    labels = [int(y) for y in job.examples.y[job.examples.members]]
    assert all_of_them["feddisco/labels"] == [labels.count(c) for c in range(10)]


def test_counts_are_not_sent_again_to_a_server_that_has_them() -> None:
    known = {wire.HALVES: ["feddisco"], "feddisco.known": [3, 0]}
    model, metrics = train(round_config(**known))
    assert "feddisco/labels" not in metrics
    assert metrics[wire.done("feddisco")] == 1
    assert same(model, train(round_config())[0])
    _, metrics = train(round_config(**{wire.HALVES: ["feddisco"], "feddisco.known": [3, 5]}))
    assert "feddisco/labels" in metrics
