"""FedNNNN, Norm-Norm and Momentum: pure functions and strategies."""

from __future__ import annotations

from typing import Any

import federation as fed
import numpy as np
import pytest
import reference as ref
from federation import OPEN, SHARES, UNIFORM, Expected, printed
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from strategies import FedNNNN, Momentum, NormNorm, fedavg, fednnnn
from strategies.fednnnn import FedNNNNState, Velocity
from strategies.shell.rule_state import pack

BY_WEIGHTING = {"examples": SHARES, "uniform": UNIFORM}


class Oracle:
    def __init__(self, beta: float, gamma: float, per_layer: bool = False, shares: list[float] = SHARES) -> None:
        self.rule, self.shares = ref.FedNNNN(beta, gamma, per_layer), shares

    def __call__(self, sent: Model, clients: Any) -> Expected:
        got = self.rule.round(sent, clients, self.shares)
        reported = {"fednnnn/N": got["N"], "fednnnn/E": got["E"], "fednnnn/skipped": int(got["skipped"])}
        return Expected(got["average"], got["sent"], reported)


# ---------------------------------------------------------------- against the oracle


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("weighting", ["examples", "uniform"])
@pytest.mark.parametrize("per_layer", [False, True])
def test_five_rounds_agree_with_the_oracle(dtype: str, weighting: str, per_layer: bool) -> None:
    beta, gamma = (0.3, 0.2) if dtype == "float16" else (0.7, 0.8)
    strategy = FedNNNN(beta=beta, gamma=gamma, per_layer=per_layer, weighting=weighting, **OPEN)
    fed.follow(strategy, fed.make_model(dtype), Oracle(beta, gamma, per_layer, BY_WEIGHTING[weighting]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("per_layer", [False, True])
def test_five_pure_steps_agree_with_the_oracle(dtype: str, per_layer: bool) -> None:
    sent = start = fed.make_model(dtype)
    expected, oracle, state = fed.widened(start), Oracle(0.7, 0.8, per_layer), FedNNNNState()
    for server_round in range(1, 6):
        clients = fed.noisy()(sent, server_round)
        done = fednnnn.aggregate(sent, clients, SHARES, state, beta=0.7, gamma=0.8, per_layer=per_layer)
        want = oracle(expected, fed.noisy()(expected, server_round))
        fed.assert_close(done.average, want.returned, start)
        state = done.state
        assert state.next is not None and state.momentum is not None
        fed.assert_close(state.next, want.sent_next, start)
        assert list(state.momentum) == ref.parameters(start)
        assert all(array.dtype == np.float64 for array in state.momentum.values())
        sent, expected = state.next, want.sent_next


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_norm_norm_agree_with_the_oracle(dtype: str) -> None:
    fed.follow(NormNorm(beta=0.9, **OPEN), fed.make_model(dtype), Oracle(0.9, 0.0))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_momentum_agree_with_the_oracle(dtype: str, weighting: str) -> None:
    rule = ref.Momentum(0.9)

    def oracle(sent: Model, clients: Any) -> Expected:
        model = rule.round(sent, clients, BY_WEIGHTING[weighting])
        return Expected(model, model)

    fed.follow(Momentum(gamma=0.9, weighting=weighting, **OPEN), fed.make_model(dtype), oracle)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_pure_momentum_agree_with_the_oracle(dtype: str) -> None:
    sent = start = fed.make_model(dtype)
    expected, rule, d = fed.widened(start), ref.Momentum(0.9), Velocity()
    for server_round in range(1, 6):
        sent, d = fednnnn.aggregate_momentum(sent, fed.noisy()(sent, server_round), SHARES, d, gamma=0.9)
        expected = rule.round(expected, fed.noisy()(expected, server_round), SHARES)
        fed.assert_close(sent, expected, start)


# ---------------------------------------------------------------- the worked round


def test_worked_round_by_examples() -> None:
    done, following = fed.rounds(FedNNNN(beta=0.7, gamma=0.8, **OPEN), fed.WORKED, fed.worked, [1, 2])
    assert done.metrics["fednnnn/N"] == printed(0.2942787794)
    assert done.metrics["fednnnn/E"] == printed(0.4260946646)
    assert done.metrics["fednnnn/skipped"] == 0
    assert done.returned is not None
    assert done.returned["a.weight"][0] == printed([1.01, -2.01])
    assert following.sent["a.weight"][0] == printed([1.0101355003, -2.0101355003])


def test_worked_round_uniform() -> None:
    strategy = FedNNNN(beta=0.7, gamma=0.8, weighting="uniform", **OPEN)
    done, following = fed.rounds(strategy, fed.WORKED, fed.worked, [1, 2])
    assert done.metrics["fednnnn/N"] == printed(0.2426703296)
    assert done.metrics["fednnnn/E"] == printed(0.4276262315)
    assert following.sent["a.weight"][0] == printed([1.0, -1.9177654275])


# ---------------------------------------------------------------- two models


def test_round_one_sends_the_model_given_and_then_its_own() -> None:
    strategy, start = FedNNNN(**OPEN), fed.make_model()
    first = fed.play(strategy, 1, start, fed.noisy())
    assert fed.bits(first.sent) == fed.bits(start)
    assert strategy.next_model is not None
    second = fed.play(strategy, 2, start, fed.noisy())  # whatever model it is given
    assert first.returned is not None
    assert fed.bits(second.sent) != fed.bits(start)
    assert fed.bits(second.sent) != fed.bits(first.returned)


def test_both_models_carry_the_same_averaged_buffers() -> None:
    first, second = fed.rounds(FedNNNN(**OPEN), fed.make_model(), fed.noisy(), [1, 2])
    assert first.returned is not None
    buffers = [name for name in first.sent if name not in ref.parameters(first.sent)]
    assert len(buffers) == 4
    for name in buffers:
        assert first.returned[name].tobytes() == second.sent[name].tobytes()
        assert first.returned[name].tobytes() != first.sent[name].tobytes() or name == "fc.mask"


def test_norm_norm_is_fednnnn_without_momentum() -> None:
    ours = fed.rounds(NormNorm(beta=0.9, **OPEN), fed.make_model(), fed.noisy())
    other = fed.rounds(FedNNNN(beta=0.9, gamma=0.0, **OPEN), fed.make_model(), fed.noisy())
    assert [fed.bits(done.sent) for done in ours] == [fed.bits(done.sent) for done in other]


# ---------------------------------------------------------------- negligible N (A1-4)


def opposing(sent: Model, server_round: int) -> list[Model]:
    """Two clients that pull exactly apart in round 2, and agree otherwise."""
    sign = -1.0 if server_round == 2 else 1.0
    first = {name: array + 0.5 for name, array in sent.items()}
    return [first, {name: array + sign * 0.5 for name, array in sent.items()}]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_negligible_move_leaves_model_and_momentum_as_they_were(dtype: str) -> None:
    strategy = FedNNNN(beta=1.0, gamma=0.5, weighting="uniform", **OPEN)
    start = {"a.weight": np.array([[1.0, 2.0]], dtype), "b": np.array([4.0], dtype)}
    first = fed.play(strategy, 1, start, opposing)
    before = strategy.state
    second = fed.play(strategy, 2, start, opposing)
    assert (first.metrics["fednnnn/skipped"], second.metrics["fednnnn/skipped"]) == (0, 1)
    assert second.metrics["fednnnn/N"] == 0.0
    assert fed.bits(pack(strategy.state)) == fed.bits(pack(before))
    third = fed.play(strategy, 3, start, opposing)
    assert fed.bits(third.sent) == fed.bits(second.sent)
    assert third.metrics["fednnnn/skipped"] == 0
    # d = 0.5 after round 1 and untouched by round 2, so 0.5 * 0.5 + 0.5 = 0.75 in round 3
    assert strategy.state.momentum["b"] == pytest.approx([0.75])


def test_buffers_are_averaged_where_the_step_is_skipped() -> None:
    sent = {"a": np.array([1.0]), "n": np.array([10])}
    clients = [{"a": np.array([2.0]), "n": np.array([20])}, {"a": np.array([0.0]), "n": np.array([30])}]
    done = fednnnn.aggregate(sent, clients, [0.5, 0.5], FedNNNNState(), beta=1.0, gamma=0.5)
    assert done.skipped
    assert (done.state.next["a"].tolist(), done.state.next["n"].tolist()) == ([1.0], [25])


@pytest.mark.parametrize(("excess", "skipped"), [(0.5e-8, True), (4e-8, False)])
def test_negligible_is_below_1e_8_of_e(excess: float, skipped: bool) -> None:
    sent = {"a": np.zeros(1)}
    clients = [{"a": np.array([1.0 + excess])}, {"a": np.array([-1.0])}]
    done = fednnnn.aggregate(sent, clients, [0.5, 0.5], FedNNNNState(), beta=1.0, gamma=0.0)
    assert done.skipped is skipped
    assert (done.state.next["a"].tolist() == [0.0]) is skipped
    assert done.average["a"] == pytest.approx([excess / 2], rel=1e-6)


def test_per_layer_skips_only_the_layer_that_does_not_move() -> None:
    sent = {"still.weight": np.zeros(2), "moving.weight": np.zeros(2)}
    clients = [
        {"still.weight": np.array([1.0, 0.0]), "moving.weight": np.array([3.0, 4.0])},
        {"still.weight": np.array([-1.0, 0.0]), "moving.weight": np.array([3.0, 4.0])},
    ]
    d = {"still.weight": np.array([7.0, 7.0]), "moving.weight": np.array([2.0, 0.0])}
    done = fednnnn.aggregate(sent, clients, [0.5, 0.5], FedNNNNState(d), beta=1.0, gamma=0.5, per_layer=True)
    assert not done.skipped
    assert done.state.next["still.weight"].tolist() == [0.0, 0.0]
    assert done.state.momentum["still.weight"].tolist() == [7.0, 7.0]
    assert done.state.next["moving.weight"] == pytest.approx([4.0, 4.0])


def test_no_update_at_all_is_skipped() -> None:
    strategy, start = FedNNNN(**OPEN), fed.make_model()
    done = fed.play(strategy, 1, start, fed.idle)
    assert done.metrics["fednnnn/skipped"] == 1
    assert done.metrics["fednnnn/E"] == 0.0
    assert done.returned is not None and strategy.next_model is not None
    assert fed.bits(done.returned) == fed.bits(start)
    assert fed.bits(strategy.next_model) == fed.bits(start)


def rounding_noise(seed: int, size: int = 20_000) -> tuple[Model, list[Model]]:
    """Two float32 clients at w + g and w - g: the mean of their updates is rounding noise alone."""
    rng = np.random.default_rng(seed)
    w = rng.normal(size=size).astype(np.float32)
    g = (0.05 * rng.normal(size=size)).astype(np.float32)
    return {"fc.weight": w}, [{"fc.weight": w + g}, {"fc.weight": w - g}]


@pytest.mark.parametrize("per_layer", [False, True])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_rounding_noise_of_float32_is_no_direction(seed: int, per_layer: bool) -> None:
    """A1-4, second form: a full step of length beta E along noise otherwise."""
    sent, clients = rounding_noise(seed)
    options: dict[str, Any] = {"beta": 1.0, "gamma": 0.0, "per_layer": per_layer}
    done = fednnnn.aggregate(sent, clients, [0.5, 0.5], FedNNNNState(), **options)
    assert 1e-8 * done.movement.whole.E < done.movement.whole.N < 1.2e-7 * ref.norm(sent, list(sent))
    assert done.skipped
    assert fed.bits(done.state.next) == fed.bits(sent)
    wide = [fed.widened(client) for client in clients]  # the same numbers where they are not noise
    assert not fednnnn.aggregate(fed.widened(sent), wide, [0.5, 0.5], FedNNNNState(), **options).skipped


def test_the_resolution_is_that_of_each_arrays_dtype() -> None:
    sent = {"a.weight": np.array([3.0, 4.0], np.float32), "b.weight": np.array([2.0])}
    move = fednnnn.movement(sent, [{name: array + 1 for name, array in sent.items()}], [1.0])
    eps, fine = float(np.finfo(np.float32).eps), float(np.finfo(np.float64).eps)
    assert move.layers["a"].resolution == pytest.approx(5.0 * eps)
    assert move.layers["b"].resolution == pytest.approx(2.0 * fine)
    assert move.whole.resolution == pytest.approx(((5.0 * eps) ** 2 + (2.0 * fine) ** 2) ** 0.5)


# ---------------------------------------------------------------- identities


@fed.PROPERTY
@given(fed.cohorts(m=1), st.integers(1, 4))
def test_identical_clients_give_fedavg(cohort: fed.AnyCohort, m: int) -> None:
    clients, shares = cohort.clients * m, [1.0 / m] * m
    done = fednnnn.aggregate(cohort.sent, clients, shares, FedNNNNState(), beta=1.0, gamma=0.0)
    want = fedavg.aggregate(cohort.sent, clients, shares)
    fed.assert_close(done.average, want, want, 1e-13)
    fed.assert_close(done.state.next, want, want, 1e-13)


@fed.PROPERTY
@given(fed.cohorts(), st.floats(0.1, 3.0))
def test_the_step_is_beta_e_without_momentum(cohort: fed.AnyCohort, beta: float) -> None:
    done = fednnnn.aggregate(*cohort, FedNNNNState(), beta=beta, gamma=0.0)
    length = ref.norm(ref.difference(done.state.next, cohort.sent), list(cohort.sent))
    want = 0.0 if done.skipped else beta * done.movement.whole.E
    assert length == pytest.approx(want, rel=1e-9, abs=1e-9)


@fed.PROPERTY
@given(fed.cohorts(), st.sampled_from([0.25, 2.0, 8.0]))
def test_scaled_updates_scale_the_step(cohort: fed.AnyCohort, c: float) -> None:
    sent, clients, shares = cohort
    scaled = [{name: sent[name] + c * (client[name] - sent[name]) for name in sent} for client in clients]
    once = fednnnn.aggregate(sent, clients, shares, FedNNNNState(), beta=0.7, gamma=0.8)
    much = fednnnn.aggregate(sent, scaled, shares, FedNNNNState(), beta=0.7, gamma=0.8)
    assert once.state.momentum is not None and much.state.momentum is not None
    for name, d in once.state.momentum.items():
        np.testing.assert_allclose(much.state.momentum[name], c * d, rtol=1e-12, atol=1e-300)


@fed.PROPERTY
@given(fed.cohorts(), st.floats(0.0, 0.95))
def test_the_average_model_is_fedavgs(cohort: fed.AnyCohort, gamma: float) -> None:
    d = {name: array + 1.0 for name, array in cohort.sent.items()}
    done = fednnnn.aggregate(*cohort, FedNNNNState(d), beta=0.7, gamma=gamma)
    assert fed.bits(done.average) == fed.bits(fedavg.aggregate(*cohort))


@fed.PROPERTY
@given(fed.cohorts(m=1), st.floats(0.0, 0.95))
def test_momentum_of_one_client_starts_with_its_model(cohort: fed.AnyCohort, gamma: float) -> None:
    model, d = fednnnn.aggregate_momentum(*cohort, Velocity(), gamma=gamma)
    assert fed.bits(model) == fed.bits(cohort.clients[0])
    again, _ = fednnnn.aggregate_momentum(model, [model], [1.0], d, gamma=gamma)
    assert d.momentum is not None
    for name in again:
        np.testing.assert_allclose(again[name] - model[name], gamma * d.momentum[name], rtol=1e-9, atol=1e-12)


# ---------------------------------------------------------------- torch


@pytest.mark.parametrize("per_layer", [False, True])
def test_torch_tensors_give_the_same_numbers(per_layer: bool) -> None:
    sent = fed.make_model(np.float64)
    torch_sent, d, torch_d = fed.to_torch(sent), FedNNNNState(), FedNNNNState()
    for server_round in (1, 2):
        clients = fed.noisy()(sent, server_round)
        torch_clients = [fed.to_torch(client) for client in clients]
        settings = {"beta": 0.7, "gamma": 0.8, "per_layer": per_layer}
        want = fednnnn.aggregate(sent, clients, SHARES, d, **settings)  # type: ignore[arg-type]
        got = fednnnn.aggregate(torch_sent, torch_clients, SHARES, torch_d, **settings)  # type: ignore[arg-type]
        fed.assert_same_numbers(got.average, want.average)
        fed.assert_same_numbers(got.state.next or {}, want.state.next or {})
        fed.assert_same_numbers(got.state.momentum or {}, want.state.momentum or {})
        d, torch_d = want.state, got.state
        sent, torch_sent = d.next or {}, torch_d.next or {}


def test_momentum_of_torch_tensors() -> None:
    sent = fed.make_model(np.float64)
    clients = fed.noisy()(sent, 1)
    torch_clients = [fed.to_torch(client) for client in clients]
    model, d = fednnnn.aggregate_momentum(fed.to_torch(sent), torch_clients, SHARES, Velocity(), gamma=0.5)
    want, want_d = fednnnn.aggregate_momentum(sent, clients, SHARES, Velocity(), gamma=0.5)
    fed.assert_same_numbers(model, want)
    fed.assert_same_numbers(d.momentum or {}, want_d.momentum or {})


# ---------------------------------------------------------------- A1-4: what is not noise


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("per_layer", [False, True])
def test_identical_clients_that_move_by_one_ulp_give_fedavg(dtype: str, per_layer: bool) -> None:
    """N = E: nothing cancels, so a small N is a small update."""
    sent = {"fc.weight": np.random.default_rng(0).normal(size=1000).astype(dtype)}
    clients = [{"fc.weight": np.nextafter(sent["fc.weight"], np.asarray(np.inf, dtype))}] * 3
    options: dict[str, Any] = {"beta": 1.0, "gamma": 0.0, "per_layer": per_layer}
    done = fednnnn.aggregate(sent, clients, SHARES, FedNNNNState(), **options)
    assert not done.skipped
    assert fed.bits(done.state.next) == fed.bits(clients[0])


def test_an_array_that_nobody_moves_does_not_hide_the_others() -> None:
    """A frozen half-precision array has no rounding noise, however large it is."""
    rng = np.random.default_rng(0)
    frozen = {"backbone.weight": rng.normal(size=100_000).astype(np.float16)}
    sent = {**frozen, "head.weight": rng.normal(size=50).astype(np.float32)}
    clients = [{**frozen, "head.weight": sent["head.weight"] + np.float32(s)} for s in (0.03, -0.01, 0.001)]
    done = fednnnn.aggregate(sent, clients, SHARES, FedNNNNState(), beta=1.0, gamma=0.0)
    move = done.movement.whole
    assert move.N < 0.5 * move.E and 1e-3 * ref.norm(sent, list(sent)) > move.N
    assert not done.skipped
