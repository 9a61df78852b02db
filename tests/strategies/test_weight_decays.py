"""AdaDecay and AWD at the server: the pure rules, the wrappers, and fixed shrinking, which FedLWS has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import federation as fed
import flwr.serverapp.strategy as flwr
import numpy as np
import pytest
import reference as ref
from federation import OPEN, SHARES, Expected, printed
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from fedstride.arrays.named import views
from fedstride.errors import ConfigError
from strategies import AWD, AdaDecay, FedAvg, FedDisco, FedLWS, FedNNNN, TwoDLRD, weight_decays

SENT: Model = {"w": np.array([1.0, -2.0])}  # the toy problem T1
DELTAS = [np.array([-0.2, 0.5]), np.array([-0.4, -0.1])]


def moved(sent: Model) -> list[Model]:
    return [{"w": sent["w"] + delta} for delta in DELTAS]


def t1(strategy: Any, rounds: int) -> list[np.ndarray]:
    """The models of rounds in which both clients of T1 make their update."""
    found, model = [], SENT
    for number in range(1, rounds + 1):
        message = fed.configure(strategy, number, model)[0]
        replies = [fed.reply(k, w_k, (10, 30)[k], to=message) for k, w_k in enumerate(moved(model))]
        model = views(strategy.aggregate_train(number, replies)[0])
        found.append(model["w"])
    return found


# ---------------------------------------------------------------- AdaDecay


def test_adadecay_worked() -> None:
    w, G = np.array([1.0, -2.0, 0.5, 3.0]), np.array([0.4, -0.1, 0.0, 0.3])
    assert weight_decays.relative(G, w) == printed([1.2649110641, -0.6324555320, -1.2649110641, 0.6324555320])
    assert weight_decays.theta(G, w, 4.0) == printed([1.9873844466, 0.1475876058, 0.0126155534, 1.8524123942])
    mean = {"w": w - G}
    decay = weight_decays.adadecay({"w": w}, mean, ["w"], strength=5e-4, alpha=4.0)
    assert weight_decays.decayed(mean, decay)["w"] == printed(
        [0.5990063078, -1.8998524124, 0.4999968461, 2.6972213814]
    )


def adadecay_oracle(sent: Model, clients: Sequence[Model]) -> Expected:
    mean = ref.weighted_sum([ref.difference(client, sent) for client in clients], SHARES)
    step = {}
    for name, delta in mean.items():
        size = np.abs(delta)
        r = (size - size.mean()) / size.std() if size.std() > 1e-12 * size.mean() else np.zeros(size.shape)
        step[name] = delta - 0.03 * 2.0 / (1.0 + np.exp(-2.0 * r)) * ref.f64(sent[name])
    model = ref.build(sent, step, ref.average_buffers(sent, clients, SHARES))
    return Expected(model, model)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_adadecay_agrees_with_the_oracle(dtype: str) -> None:
    # float32: the mean is rounded before G is taken, so r of an array of three values is off by some 1e-6.
    fed.follow(AdaDecay(FedAvg(**OPEN), strength=0.03, alpha=2.0), fed.make_model(dtype), adadecay_oracle)


@fed.PROPERTY
@given(st.lists(st.floats(-10.0, 10.0), min_size=2, max_size=9), st.floats(0.5, 8.0), st.floats(0.01, 100.0))
def test_theta_is_within_its_bounds_and_does_not_depend_on_the_scale(
    values: list[float], alpha: float, scale: float
) -> None:
    G, w = np.array(values), np.ones(len(values))
    r, found = weight_decays.relative(G, w), weight_decays.theta(G, w, alpha)
    assert (found >= 0.0).all() and (found <= 2.0).all()
    np.testing.assert_allclose(found + (1.0 + np.tanh(-0.5 * alpha * r)), 2.0, rtol=0, atol=1e-12)
    if np.abs(G).std() > 1e-6:
        np.testing.assert_allclose(weight_decays.theta(scale * G, w, alpha), found, rtol=0, atol=1e-6)


def test_an_update_of_constant_size_decays_all_weights_equally() -> None:
    for dtype, size in ((np.float64, 0.1), (np.float32, 0.1)):
        w = np.linspace(-1.0, 1.0, 50).astype(dtype)
        G = w - (w - dtype(size) * np.sign(w)).astype(dtype)  # with the rounding of the dtype
        assert (weight_decays.theta(G, w, 4.0) == 1.0).all()


def test_without_alpha_all_weights_decay_equally() -> None:
    (got,) = t1(AdaDecay(FedAvg(**OPEN), strength=0.01, alpha=0.0), 1)
    assert got == printed(np.array([0.65, -1.95]) - 0.01 * SENT["w"])


# ---------------------------------------------------------------- AWD


def test_awd_worked() -> None:
    strategy = AWD(FedAvg(**OPEN))
    assert weight_decays.awd_strength(SENT, {"w": np.array([0.65, -1.95])}, ["w"], strength=0.022) == printed(
        0.0034785054
    )
    first, second = t1(strategy, 2)
    assert first == printed([0.6468693451, -1.9437386902])
    assert second == printed([0.2944563351, -1.8864879818])
    assert strategy.state.smoothed == printed(0.0037302897)


def test_the_first_smoothed_factor() -> None:
    strategy = AWD(FedAvg(**OPEN))
    t1(strategy, 1)
    assert strategy.state.smoothed == printed(0.0031306549)


def awd_oracle() -> Any:
    kept = [0.0]

    def oracle(sent: Model, clients: Sequence[Model]) -> Expected:
        mean = ref.weighted_sum([ref.difference(client, sent) for client in clients], SHARES)
        names = list(mean)
        lam = 0.5 * ref.norm(mean, names) / ref.norm(sent, names)
        kept[0] = 0.1 * kept[0] + 0.9 * lam
        step = {n: mean[n] - kept[0] * ref.f64(sent[n]) for n in names}
        model = ref.build(sent, step, ref.average_buffers(sent, clients, SHARES))
        return Expected(model, model, {"awd/lambda": kept[0]})

    return oracle


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_awd_agrees_with_the_oracle(dtype: str) -> None:
    fed.follow(AWD(FedAvg(**OPEN), strength=0.5), fed.make_model(dtype), awd_oracle())


def test_a_constant_ratio_is_approached_by_a_factor_of_ten() -> None:
    """lambda (1 - 0.1^t): the model doubles, and so do the updates."""
    strategy = AWD(FedAvg(**OPEN), strength=0.1)
    for number in range(1, 5):
        sent = {"w": 2.0**number * SENT["w"]}
        fed.configure(strategy, number, sent)
        strategy.aggregate_train(number, [fed.reply(1, {"w": 0.5 * sent["w"]})])
        assert strategy.state.smoothed == pytest.approx(0.05 * (1.0 - 0.1**number), rel=1e-12)


@pytest.mark.parametrize("scale", [1e-10, 1e15])
def test_awd_scales_with_the_model(scale: float) -> None:
    strategy = AWD(FedAvg(**OPEN))
    sent = {"w": scale * SENT["w"]}
    fed.configure(strategy, 1, sent)
    replies = [fed.reply(k, {"w": scale * w_k["w"]}, (10, 30)[k]) for k, w_k in enumerate(moved(SENT))]
    got = views(strategy.aggregate_train(1, replies)[0])["w"]
    np.testing.assert_allclose(got / scale, [0.6468693451, -1.9437386902], rtol=1e-9)


# ---------------------------------------------------------------- both

BOTH = pytest.mark.parametrize("make", [AdaDecay, AWD])


@BOTH
def test_without_strength_it_is_the_inner_strategy(make: Any) -> None:
    start = fed.make_model()
    one, other = (fed.rounds(s, start, fed.noisy()) for s in (FedAvg(**OPEN), make(FedAvg(**OPEN), strength=0.0)))
    assert [fed.bits(done.returned or {}) for done in one] == [fed.bits(done.returned or {}) for done in other]


@BOTH
def test_buffers_and_arrays_that_nobody_changed_do_not_decay(make: Any) -> None:
    start = fed.make_model()

    def train(sent: Model, server_round: int) -> list[Model]:
        return [{**w_k, "fc.weight": sent["fc.weight"]} for w_k in fed.noisy()(sent, server_round)]

    done = fed.rounds(make(FedAvg(**OPEN), strength=0.5), start, train, [1, 2])
    plain = fed.play(FedAvg(**OPEN), 1, start, train)
    first, last = done[0].returned, done[1].returned
    assert first is not None and last is not None and plain.returned is not None
    assert fed.bits({"": last["fc.weight"]}) == fed.bits({"": start["fc.weight"]})
    buffers = [name for name in start if name not in ref.parameters(start)]
    assert fed.bits({n: first[n] for n in buffers}) == fed.bits({n: plain.returned[n] for n in buffers})
    assert np.abs(first["fc.bias"] - plain.returned["fc.bias"]).max() > 0.0


@BOTH
def test_both_models_of_fednnnn_decay(make: Any) -> None:
    start = fed.make_model(np.float64)
    plain, wrapped = FedNNNN(**OPEN), make(FedNNNN(**OPEN), strength=0.1)
    one, other = (fed.play(s, 1, start, fed.noisy()) for s in (plain, wrapped))
    assert one.returned is not None and other.returned is not None
    assert plain.next_model is not None and wrapped.next_model is not None
    for name in ref.parameters(start):
        lost = one.returned[name] - other.returned[name]
        np.testing.assert_allclose(plain.next_model[name] - wrapped.next_model[name], lost, rtol=0, atol=1e-12)
        assert np.abs(lost).max() > 0.0


@BOTH
@pytest.mark.parametrize("inside", [FedLWS, TwoDLRD, AWD, AdaDecay])
def test_a_wrapper_that_must_be_outside_is_refused(make: Any, inside: Any) -> None:
    with pytest.raises(ConfigError, match=r"one without another decay, FedLWS or TwoDLRD inside"):
        make(inside())


@BOTH
def test_it_is_allowed_around_rules_and_inside_the_outer_wrappers(make: Any) -> None:
    start = fed.make_model()
    for strategy in (
        make(FedDisco(num_classes=4, **OPEN)),
        make(flwr.FedAvgM(server_momentum=0.9, **OPEN)),
        make(flwr.FedMedian(**OPEN)),
        TwoDLRD(FedLWS(make(FedAvg(**OPEN)))),
    ):
        assert all(done.returned is not None for done in fed.rounds(strategy, start, fed.noisy(), [1, 2]))


# ---------------------------------------------------------------- fixed shrinking (B-36)


def test_fixed_shrinking_worked() -> None:
    (got,) = t1(FedLWS(FedAvg(**OPEN), granularity="model", fixed=[0.97]), 1)
    assert got == printed([0.6305, -1.8915])


def test_fixed_shrinking_with_one_constant_is_the_same_for_layers_and_model() -> None:
    start = fed.make_model()
    layers = len({name.rpartition(".")[0] or name for name in ref.parameters(start)})
    both = [
        fed.play(FedLWS(FedAvg(**OPEN), granularity=kind, fixed=[0.97] * count), 1, start, fed.noisy())
        for kind, count in (("layer", layers), ("model", 1))
    ]
    assert fed.bits(both[0].returned or {}) == fed.bits(both[1].returned or {})
