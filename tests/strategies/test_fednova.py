"""FedNova at the server: the pure step, the strategy, and clients that do not report a_k."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import federation as fed
import numpy as np
import pytest
import reference as ref
from federation import OPEN, SHARES, printed
from flwr.app import Message
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from fedstride.arrays.named import views
from fedstride.errors import ConfigError
from fedstride.messages import wire
from strategies import DifferentialPrivacy, FedNova, fedavg, fednova

SENT: Model = {"w": np.array([1.0, -2.0])}  # the toy problem T1
CLIENTS: list[Model] = [{"w": np.array([0.8, -1.5])}, {"w": np.array([0.6, -2.1])}]
P = [0.25, 0.75]


def effective(tau: int, rho: float) -> float:
    """(NO1) in closed form, with momentum and without a proximal term."""
    return float(tau) if rho == 0.0 else (tau - rho * (1.0 - rho**tau) / (1.0 - rho)) / (1.0 - rho)


def oracle(
    sent: Model, clients: Sequence[Model], shares: Sequence[float], a: Sequence[float], tau: float
) -> Model:
    """(NO3), with tau_eff given, written as one sum per array."""
    step = {
        name: sum(
            tau * p / a_k * (ref.f64(w_k[name]) - ref.f64(sent[name]))
            for p, a_k, w_k in zip(shares, a, clients, strict=True)
        )
        for name in ref.parameters(sent)
    }
    return ref.build(sent, step, ref.average_buffers(sent, clients, shares))


def replies(message: Message, models: Sequence[Model], a: Sequence[Any], examples: Sequence[int]) -> list[Message]:
    """Replies of the clients 1, 2, ... with these a_k; None: without any."""
    return [
        fed.reply_with("fednova/a", a_k, message, node, w_k, n)
        for node, (w_k, a_k, n) in enumerate(zip(models, a, examples, strict=True), 1)
    ]


# ---------------------------------------------------------------- the worked example T1


@pytest.mark.parametrize(
    ("rho", "a", "tau_eff", "returned"),
    [
        (0.0, [2.0, 5.0], 4.25, [0.63875, -1.798125]),
        (0.9, [2.9, 13.1441], 10.583075, [0.5759858414, -1.6042198112]),
    ],
)
def test_worked(rho: float, a: list[float], tau_eff: float, returned: list[float]) -> None:
    assert [effective(tau, rho) for tau in (2, 5)] == [printed(each) for each in a]
    model, tau = fednova.aggregate(SENT, CLIENTS, P, a)
    assert tau == printed(tau_eff)
    assert model["w"] == printed(returned)


def test_worked_through_messages() -> None:
    strategy = FedNova(**OPEN)
    message = fed.configure(strategy, 1, SENT)[0]
    assert message.content["config"][wire.HALVES] == ["fednova"]
    record, metrics = strategy.aggregate_train(1, replies(message, CLIENTS, [2, 5.0], [10, 30])[::-1])
    assert views(record)["w"] == printed([0.63875, -1.798125])
    assert metrics["fednova/tau_eff"] == printed(4.25)


# ---------------------------------------------------------------- against the oracle


@pytest.mark.parametrize("tau_eff", ["effective", "steps"])
@pytest.mark.parametrize("weighting", ["examples", "uniform"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rounds_with_other_clients_each_time(dtype: str, weighting: str, tau_eff: str) -> None:
    """Two of three clients take part, others in each round; a_k differ."""
    start = fed.make_model(dtype)
    strategy = FedNova(tau_eff=tau_eff, weighting=weighting, **OPEN)
    model, expected = start, fed.widened(start)
    for number, who in enumerate(([0, 1], [1, 2], [0, 2], [2], [0, 1, 2]), 1):
        a, examples = [1.5 + 2.0 * k for k in who], [10 * (k + 1) for k in who]
        p = [n / sum(examples) for n in examples] if weighting == "examples" else [1.0 / len(who)] * len(who)
        message = fed.configure(strategy, number, model)[0]
        models = [fed.noisy()(fed.model_in(message), number)[k] for k in who]
        arrived = replies(message, models, a, examples)
        steps = [int(reply.content[wire.METRICS][wire.TRAIN_STEPS]) for reply in arrived]
        record, metrics = strategy.aggregate_train(number, arrived[::-1])
        tau = float(np.dot(p, a if tau_eff == "effective" else steps))
        expected = oracle(expected, [fed.noisy()(expected, number)[k] for k in who], p, a, tau)
        model = views(record)
        fed.assert_close(model, expected, start)
        assert metrics["fednova/tau_eff"] == pytest.approx(tau, rel=1e-12)


# ---------------------------------------------------------------- identities


@fed.PROPERTY
@given(fed.cohorts(), st.floats(0.1, 1000.0))
def test_equal_a_are_fedavg(cohort: fed.AnyCohort, a: float) -> None:
    sent, clients, shares = cohort
    model, _ = fednova.aggregate(sent, clients, shares, [a] * len(clients))
    fed.assert_close(model, fedavg.aggregate(sent, clients, shares), sent, 1e-9)


@fed.PROPERTY
@given(fed.cohorts(m=1), st.floats(1e-9, 1e12))
def test_one_client_is_fedavg(cohort: fed.AnyCohort, a: float) -> None:
    sent, clients, _ = cohort
    assert fed.bits(fednova.aggregate(sent, clients, [1.0], [a])[0]) == fed.bits(
        fedavg.aggregate(sent, clients, [1.0])
    )


@fed.PROPERTY
@given(fed.cohorts(m=3), st.lists(st.floats(0.5, 50.0), min_size=3, max_size=3), st.floats(0.01, 100.0))
def test_a_common_factor_of_all_a_changes_nothing(cohort: fed.AnyCohort, a: list[float], factor: float) -> None:
    sent, clients, shares = cohort
    one, other = (fednova.aggregate(sent, clients, shares, [s * each for each in a])[0] for s in (1.0, factor))
    fed.assert_close(other, one, sent, 1e-9)


@fed.PROPERTY
@given(fed.cohorts(m=3), st.permutations(range(3)), st.lists(st.floats(0.5, 50.0), min_size=3, max_size=3))
def test_the_order_of_clients_does_not_matter(cohort: fed.AnyCohort, order: list[int], a: list[float]) -> None:
    sent, clients, shares = cohort
    one = fednova.aggregate(sent, clients, shares, a)[0]
    other = fednova.aggregate(sent, [clients[k] for k in order], [shares[k] for k in order], [a[k] for k in order])
    fed.assert_close(other[0], one, sent, 1e-9)


@pytest.mark.parametrize("scale", [1e-10, 1.0, 1e15])
def test_updates_of_any_scale(scale: float) -> None:
    sent = {"w": np.zeros(2)}
    clients = [{"w": scale * (w_k["w"] - SENT["w"])} for w_k in CLIENTS]
    model, _ = fednova.aggregate(sent, clients, P, [2.0, 5.0])
    np.testing.assert_allclose(model["w"], scale * np.array([-0.36125, 0.201875]), rtol=1e-12)


def test_buffers_are_averaged_and_never_normalised() -> None:
    start = fed.make_model()
    done = fed.play(FedNova(**OPEN), 1, start, fed.noisy())
    want = ref.average_buffers(start, fed.noisy()(start, 1), SHARES)
    assert done.returned is not None and len(want) == 4
    fed.assert_close({n: done.returned[n] for n in want}, want, {n: start[n] for n in want})


def test_torch_tensors_give_the_same_numbers() -> None:
    sent = fed.make_model(np.float64)
    clients, a = fed.noisy()(sent, 1), [1.0, 3.0, 2.5]
    want, _ = fednova.aggregate(sent, clients, SHARES, a)
    got, _ = fednova.aggregate(fed.to_torch(sent), [fed.to_torch(w_k) for w_k in clients], SHARES, a)
    fed.assert_same_numbers(got, want)


# ---------------------------------------------------------------- clients without a valid a_k


@pytest.mark.parametrize(
    ("a", "reason"),
    [
        (None, "the requested number 'fednova/a' is missing"),
        (0.0, "the requested number 'fednova/a' is 0, expected [1e-09, 1e+12]"),
        (-3.0, "is -3, expected [1e-09, 1e+12]"),
        (np.nan, "is nan, expected [1e-09, 1e+12]"),
        (np.inf, "is inf, expected"),
        (10**300, "is 1e+300, expected"),
        ([2.0], "the requested number 'fednova/a' is a list of 1, expected a number"),
    ],
)
def test_a_reply_without_a_valid_number_is_rejected(a: Any, reason: str) -> None:
    strategy, clean = FedNova(**OPEN), FedNova(**OPEN)
    results = []
    for one, reported in ((strategy, [2.0, 5.0, a]), (clean, [2.0, 5.0])):
        message = fed.configure(one, 1, SENT)[0]
        models = [*CLIENTS, CLIENTS[0]][: len(reported)]
        results.append(one.aggregate_train(1, replies(message, models, reported, [10, 30, 60][: len(reported)])))
    (record, metrics), (expected, _) = results
    assert metrics["screening/rejected"] == 1
    assert strategy.last_cohort is not None and reason in strategy.last_cohort.rejected[0].reason
    assert fed.bits(views(record)) == fed.bits(views(expected))


def test_privacy_is_refused_because_nothing_protects_the_number() -> None:
    with pytest.raises(ConfigError, match=r"privacy would not protect fednova/a; choose another strategy"):
        DifferentialPrivacy(FedNova(**OPEN))
