"""FedLWS: the pure functions, the wrapper around our rules and around Flower's own strategies."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import federation as fed
import flwr.serverapp.strategy as flwr
import numpy as np
import pytest
import reference as ref
from federation import OPEN, SHARES, UNIFORM, Expected, printed
from flwr.serverapp.strategy import Strategy
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from fedstride.errors import ConfigError
from strategies import FedAvg, FedLWS, FedNNNN, Momentum, NormAnalysis, TwoDLRD, fedavg, fedlws

Aggregation = Callable[[Model, Sequence[Model]], Model]


class Oracle:
    """FedLWS after an aggregation."""

    def __init__(self, aggregate: Aggregation = fed.fedavg_oracle, **settings: Any) -> None:
        self.aggregate, self.settings = aggregate, settings

    def __call__(self, sent: Model, clients: Sequence[Model]) -> Expected:
        got = ref.fedlws(sent, clients, self.aggregate(sent, clients), **self.settings)
        reported = {f"fedlws/gamma/{label}": gamma for label, gamma in got["gamma"].items()}
        reported |= {f"fedlws/tau/{label}": tau for label, tau in got["tau"].items()}
        return Expected(got["model"], got["model"], reported)


# ---------------------------------------------------------------- against the oracle


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_five_rounds_around_fedavg(dtype: str, weighting: str) -> None:
    shares = SHARES if weighting == "examples" else UNIFORM
    oracle = Oracle(lambda sent, clients: fed.fedavg_oracle(sent, clients, shares), beta=0.1)
    fed.follow(FedLWS(FedAvg(weighting=weighting, **OPEN), beta=0.1), fed.make_model(dtype), oracle)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "settings",
    [
        {"beta": 0.5},
        {"beta": 0.03, "tau_min": 0.01, "tau_max": 0.2},
        {"beta": 10.0, "tau_max": 0.2},
        {"beta": 1e-6, "tau_min": 0.01},
        {"beta": 0.1, "grouping": "reference"},
        {"beta": 0.1, "granularity": "model"},
        {"beta": 0.1, "granularity": "model", "grouping": "reference"},
        {"beta": 0.3, "terms": "optimization"},
        {"beta": 0.3, "terms": "regularization"},
        {"beta": 0.1, "fixed": (1.0, 0.99, 0.98, 0.96)},
        {"beta": 0.1, "fixed": [0.9], "granularity": "model"},
    ],
    ids=str,
)
def test_five_rounds_with_every_setting(dtype: str, settings: dict[str, Any]) -> None:
    fed.follow(FedLWS(FedAvg(**OPEN), **settings), fed.make_model(dtype), Oracle(**settings))


def factor_from(sent: Any, clients: Sequence[Any], result: Any, names: Sequence[str], **how: Any) -> fedlws.Factor:
    return fedlws.shrinking_factor(fedlws.lengths(sent, clients, result, names), names, **how)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_five_pure_rounds_agree_with_the_oracle(dtype: str) -> None:
    sent = start = fed.make_model(dtype)
    expected, oracle = fed.widened(start), Oracle(beta=0.1)
    for server_round in range(1, 6):
        clients = fed.noisy()(sent, server_round)
        result = fedavg.aggregate(sent, clients, SHARES)
        gamma = {}
        for names in fedlws.groups(sent).values():
            factor = factor_from(sent, clients, result, names, beta=0.1)
            gamma |= dict.fromkeys(names, factor.gamma)
        sent = fedlws.shrunk(sent, result, gamma)
        expected = oracle(expected, fed.noisy()(expected, server_round)).returned
        fed.assert_close(sent, expected, start)


def test_diagnostics_of_layers_and_model() -> None:
    start = fed.make_model(np.float64)
    done = fed.play(FedLWS(FedAvg(**OPEN), beta=0.1), 1, start, fed.noisy())
    clients = fed.noisy()(start, 1)
    average = fed.fedavg_oracle(start, clients)
    step = ref.difference(average, start)
    gammas = ref.fedlws(start, clients, average, beta=0.1)["gamma"]
    reported = done.metrics
    for layer, names in ref.layers(start).items():
        assert reported[f"fedlws/step/{layer}"] == pytest.approx(ref.norm(step, names), rel=1e-10)
        assert reported[f"fedlws/weight/{layer}"] == pytest.approx(ref.norm(start, names), rel=1e-10)
    assert reported["fedlws/gamma_min"] == pytest.approx(min(gammas.values()), rel=1e-10)
    assert reported["fedlws/gamma_max"] == pytest.approx(max(gammas.values()), rel=1e-10)
    assert reported["fedlws/gamma_mean"] == pytest.approx(sum(gammas.values()) / 4, rel=1e-10)
    whole = ref.fedlws(start, clients, average, beta=0.1, granularity="model")
    assert reported["fedlws/gamma_model"] == pytest.approx(whole["gamma"]["model"], rel=1e-10)
    assert reported["fedlws/tau_model"] == pytest.approx(whole["tau"]["model"], rel=1e-10)
    assert not [key for key in reported if key.startswith("fedlws/r/")]  # A3-10: it would be beta tau


# ---------------------------------------------------------------- the worked round


def test_worked_round() -> None:
    done = fed.play(FedLWS(FedAvg(**OPEN), beta=0.1), 1, fed.WORKED, fed.worked)
    assert done.metrics["fedlws/tau/a"] == printed(0.2825629141)
    assert done.metrics["fedlws/gamma/a"] == printed(0.9982292886)
    assert done.metrics["fedlws/tau/b"] == printed(0.1929932615)
    assert done.metrics["fedlws/gamma/b"] == printed(0.9985969591)
    assert done.returned is not None
    assert done.returned["a.weight"][0] == printed([1.0082115815, -2.0064408701])
    assert done.returned["b.weight"][0] == printed([2.1170255534, -0.8887512936])


def test_worked_round_model_wise() -> None:
    done = fed.play(FedLWS(FedAvg(**OPEN), beta=0.1, granularity="model"), 1, fed.WORKED, fed.worked)
    assert done.metrics["fedlws/tau/model"] == done.metrics["fedlws/tau_model"] == printed(0.3495077873)
    assert done.metrics["fedlws/gamma/model"] == done.metrics["fedlws/gamma_model"] == printed(0.9977195960)


# ---------------------------------------------------------------- layers


def test_layers_of_a_model() -> None:
    model = fed.make_model()
    assert fedlws.groups(model) == {
        "conv1": ("conv1.weight", "conv1.bias"),
        "bn1": ("bn1.weight", "bn1.bias"),
        "fc": ("fc.weight", "fc.bias"),
        "scale": ("scale",),
    }


def test_reference_groups_end_with_a_bias_and_the_rest_joins_the_last() -> None:
    names = ["conv.weight", "bn.weight", "bn.running_mean", "bn.bias", "fc.weight", "fc.bias", "temperature"]
    got = fedlws.groups({name: np.zeros(1) for name in names}, grouping="reference")
    assert got == {"conv": ("conv.weight", "bn.weight", "bn.bias"), "fc": ("fc.weight", "fc.bias", "temperature")}


def test_reference_groups_without_any_bias_are_one() -> None:
    got = fedlws.groups({"a.weight": np.zeros(1), "b.weight": np.zeros(1)}, grouping="reference")
    assert got == {"a": ("a.weight", "b.weight")}


def test_reference_groups_of_one_layer_get_numbers() -> None:
    names = ["lstm.weight_ih", "lstm.bias_ih", "lstm.bias_hh", "fc.bias"]
    got = fedlws.groups({name: np.zeros(1) for name in names}, grouping="reference")
    assert list(got) == ["lstm", "lstm#2", "fc"]
    assert list(got.values()) == [("lstm.weight_ih", "lstm.bias_ih"), *((name,) for name in names[2:])]


def test_fixed_factors_must_be_one_a_layer() -> None:
    strategy = FedLWS(FedAvg(**OPEN), fixed=[1.0, 0.98])
    with pytest.raises(ConfigError, match=r"fixed = .* must be 4 factors: conv1, bn1, fc, scale"):
        fed.play(strategy, 1, fed.make_model(), fed.noisy())


# ---------------------------------------------------------------- ugly models


def test_a_layer_that_starts_at_zero_is_not_shrunk() -> None:
    """A3-6."""
    start = fed.make_model(np.float64) | {"fc.weight": np.zeros((5, 8)), "fc.bias": np.zeros(5)}
    done = fed.play(FedLWS(FedAvg(**OPEN), beta=5.0), 1, start, fed.noisy())
    plain = fed.play(FedAvg(**OPEN), 1, start, fed.noisy())
    assert done.returned is not None and plain.returned is not None
    assert done.metrics["fedlws/gamma/fc"] == 1.0
    assert done.metrics["fedlws/gamma/conv1"] < 1.0
    assert done.returned["fc.weight"].tobytes() == plain.returned["fc.weight"].tobytes()
    assert np.abs(done.returned["fc.weight"]).max() > 0.0


def test_an_all_zero_model_becomes_the_aggregate() -> None:
    start = {name: np.zeros_like(array) for name, array in fed.make_model().items()}
    done = fed.play(FedLWS(FedAvg(**OPEN), beta=5.0), 1, start, fed.noisy())
    plain = fed.play(FedAvg(**OPEN), 1, start, fed.noisy())
    assert done.returned is not None and plain.returned is not None
    assert fed.bits(done.returned) == fed.bits(plain.returned)
    assert done.metrics["fedlws/gamma_min"] == done.metrics["fedlws/gamma_model"] == 1.0


def test_norms_of_large_half_precision_layers_do_not_overflow() -> None:
    sent = {"fc.weight": np.full((40, 40), 300.0, np.float16)}
    clients = [{"fc.weight": sent["fc.weight"] + np.float16(step)} for step in (-100.0, 200.0)]
    result = fedavg.aggregate(sent, clients, [0.5, 0.5])
    got = factor_from(sent, clients, result, ["fc.weight"], beta=1e-6)
    assert got == pytest.approx((12000 / (1e-6 * 6000 * 2000 + 12000), 6000.0, 2000.0, 12000.0), rel=1e-12)


def test_nothing_moved() -> None:
    start = fed.make_model()
    done = fed.play(FedLWS(FedAvg(**OPEN)), 1, start, fed.idle)
    assert done.returned is not None
    assert fed.bits(done.returned) == fed.bits(start)
    assert (done.metrics["fedlws/tau_model"], done.metrics["fedlws/gamma_model"]) == (0.0, 1.0)


def test_buffers_are_never_shrunk() -> None:
    start = fed.make_model()
    done = fed.play(FedLWS(FedAvg(**OPEN), beta=5.0), 1, start, fed.noisy())
    plain = fed.play(FedAvg(**OPEN), 1, start, fed.noisy())
    assert done.returned is not None and plain.returned is not None
    for name in start:
        is_parameter = name in ref.parameters(start)
        assert (done.returned[name].tobytes() != plain.returned[name].tobytes()) is is_parameter, name


# ---------------------------------------------------------------- identities


def factor_of(cohort: fed.AnyCohort, names: Sequence[str] = ("a.weight", "a.bias", "b"), **how: Any) -> Any:
    result = fedavg.aggregate(*cohort)
    return factor_from(cohort.sent, cohort.clients, result, names, **({"beta": 0.1} | how))


@fed.PROPERTY
@given(fed.cohorts(), st.floats(0.0, 10.0))
def test_gamma_is_in_zero_one(cohort: fed.AnyCohort, beta: float) -> None:
    assert 0.0 < factor_of(cohort, beta=beta).gamma <= 1.0


@fed.PROPERTY
@given(fed.cohorts(), st.floats(0.0, 10.0), st.floats(0.0, 10.0))
def test_gamma_falls_as_beta_grows(cohort: fed.AnyCohort, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert factor_of(cohort, beta=high).gamma <= factor_of(cohort, beta=low).gamma


@fed.PROPERTY
@given(fed.cohorts(m=1), st.integers(1, 4))
def test_one_client_or_identical_clients_are_not_shrunk(cohort: fed.AnyCohort, m: int) -> None:
    result = fedavg.aggregate(*cohort)
    got = factor_from(cohort.sent, cohort.clients * m, result, ["a.weight", "b"], beta=0.1)
    assert got.tau == pytest.approx(0.0, abs=1e-12)
    assert got.gamma == pytest.approx(1.0, abs=1e-12)


@fed.PROPERTY
@given(fed.cohorts(), st.sampled_from([0.5, 2.0, 16.0]))
def test_tau_scales_with_the_model_so_gamma_is_not_scale_free(cohort: fed.AnyCohort, c: float) -> None:
    sent, clients = (
        {n: c * a for n, a in cohort.sent.items()},
        [{n: c * a for n, a in w_k.items()} for w_k in cohort.clients],
    )
    once, much = factor_of(cohort), factor_of(fed.AnyCohort(sent, clients, cohort.shares))
    assert much.tau == pytest.approx(c * once.tau, rel=1e-9, abs=1e-12)
    if once.gamma < 1.0 - 1e-9:
        assert (much.gamma < once.gamma) is (c > 1.0)


@fed.PROPERTY
@given(fed.cohorts())
def test_one_layer_is_the_model(cohort: fed.AnyCohort) -> None:
    sent, *_ = one = fed.AnyCohort(
        {"b": cohort.sent["b"]}, [{"b": w_k["b"]} for w_k in cohort.clients], cohort.shares
    )
    by_layer, by_model = (fedlws.groups(sent, granularity) for granularity in ("layer", "model"))
    assert list(by_layer.values()) == list(by_model.values())
    assert factor_of(one, by_layer["b"]) == factor_of(one, by_model["model"])


@fed.PROPERTY
@given(fed.cohorts(m=3), st.floats(0.01, 1.0))
def test_r_is_beta_tau(cohort: fed.AnyCohort, beta: float) -> None:
    got = factor_of(cohort, beta=beta)
    if got.step_norm > 0.0 and got.gamma < 0.999:
        r = (1.0 - got.gamma) * got.w_norm / (got.gamma * got.step_norm)
        assert r == pytest.approx(beta * got.tau, rel=1e-9)


@fed.PROPERTY
@given(fed.cohorts(), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_the_clamp_holds_beta_tau_within_its_bounds(cohort: fed.AnyCohort, one: float, other: float) -> None:
    low, high = sorted((one, other))
    got = factor_of(cohort, tau_min=low, tau_max=high)
    product = min(max(0.1 * got.tau, low), high)
    want = got.w_norm / (product * got.step_norm + got.w_norm) if got.w_norm > 0.0 else 1.0
    assert got.gamma == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("inner", [FedAvg, FedNNNN, Momentum])
def test_beta_zero_is_the_wrapped_rule_bit_for_bit(inner: type[Any], dtype: str) -> None:
    start = fed.make_model(dtype)
    plain = fed.rounds(inner(**OPEN), start, fed.noisy())
    wrapped = fed.rounds(FedLWS(inner(**OPEN), beta=0.0), start, fed.noisy())
    for one, other in zip(plain, wrapped, strict=True):
        assert one.returned is not None and other.returned is not None
        assert fed.bits(one.sent) == fed.bits(other.sent)
        assert fed.bits(one.returned) == fed.bits(other.returned)


# ---------------------------------------------------------------- around FedNNNN (A3-1)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_both_models_of_fednnnn_are_shrunk_by_the_same_factors(dtype: str) -> None:
    rule = ref.FedNNNN(0.7, 0.8)

    def oracle(sent: Model, clients: Sequence[Model]) -> Expected:
        got = rule.round(sent, clients, SHARES)
        shrunk = ref.fedlws(sent, clients, got["sent"], beta=0.1)
        gamma = {f"fedlws/gamma/{layer}": value for layer, value in shrunk["gamma"].items()}
        returned = {
            name: shrunk["gamma"][ref.module_of(name)] * array if name in ref.parameters(sent) else array
            for name, array in got["average"].items()
        }
        return Expected(returned, shrunk["model"], {**gamma, "fednnnn/N": got["N"], "fednnnn/E": got["E"]})

    fed.follow(FedLWS(FedNNNN(beta=0.7, gamma=0.8, **OPEN), beta=0.1), fed.make_model(dtype), oracle)


def test_a_wrapper_in_between_passes_both_models_through() -> None:
    direct = fed.rounds(FedLWS(FedNNNN(**OPEN)), fed.make_model(), fed.noisy())
    nested = fed.rounds(FedLWS(NormAnalysis(FedNNNN(**OPEN))), fed.make_model(), fed.noisy())
    for one, other in zip(direct, nested, strict=True):
        assert fed.bits(one.sent) == fed.bits(other.sent)


def test_two_d_lrd_anywhere_inside_is_refused() -> None:
    for inner in (TwoDLRD(), NormAnalysis(TwoDLRD()), NormAnalysis(NormAnalysis(TwoDLRD()))):
        with pytest.raises(ConfigError, match=r"TwoDLRD\(FedLWS\(\.\.\.\)\)"):
            FedLWS(inner)


# ---------------------------------------------------------------- around Flower's own strategies


class AvgM:
    def __init__(self, lr: float, momentum: float) -> None:
        self.lr, self.momentum, self.v = lr, momentum, dict[str, Any]()

    def __call__(self, sent: Model, clients: Sequence[Model]) -> Model:
        average = fed.fedavg_oracle(sent, clients)
        model = dict(average)
        for name in ref.parameters(sent):
            pseudo = sent[name] - average[name]
            self.v[name] = self.momentum * self.v[name] + pseudo if name in self.v else pseudo
            model[name] = sent[name] - self.lr * self.v[name]
        return model


class Adam:
    def __init__(self, eta: float = 0.1, beta_1: float = 0.9, beta_2: float = 0.99, tau: float = 1e-3) -> None:
        self.eta, self.beta_1, self.beta_2, self.tau = eta, beta_1, beta_2, tau
        self.m, self.v, self.round = dict[str, Any](), dict[str, Any](), 0

    def __call__(self, sent: Model, clients: Sequence[Model]) -> Model:
        self.round += 1
        average = fed.fedavg_oracle(sent, clients)
        model = dict(average)
        rate = self.eta * math.sqrt(1 - self.beta_2 ** (self.round + 1)) / (1 - self.beta_1 ** (self.round + 1))
        for name in ref.parameters(sent):
            delta = average[name] - sent[name]
            self.m[name] = self.beta_1 * self.m.get(name, 0.0) + (1 - self.beta_1) * delta
            self.v[name] = self.beta_2 * self.v.get(name, 0.0) + (1 - self.beta_2) * delta**2
            model[name] = sent[name] + rate * self.m[name] / (np.sqrt(self.v[name]) + self.tau)
        return model


def median(sent: Model, clients: Sequence[Model]) -> Model:
    """Of three clients: the second of the sorted values. In buffers too: so has Flower it."""
    values = {name: np.sort([client[name] for client in clients], axis=0)[1] for name in sent}
    return {name: value.astype(sent[name].dtype) for name, value in values.items()}


def krum(sent: Model, clients: Sequence[Model]) -> Model:
    """Of three clients: the one with the nearest neighbour, the first of two that are that near."""

    def apart(i: int, j: int) -> float:
        return float(sum(np.sum((ref.f64(clients[i][n]) - ref.f64(clients[j][n])) ** 2) for n in sent))

    scores = [min(apart(i, j) for j in range(3) if j != i) for i in range(3)]
    return dict(clients[int(np.argmin(scores))])


BUILT_IN: dict[str, tuple[Callable[[], Strategy], Callable[[], Aggregation]]] = {
    "FedAvg": (lambda: flwr.FedAvg(**OPEN), lambda: fed.fedavg_oracle),
    "FedAvgM": (
        lambda: flwr.FedAvgM(server_learning_rate=0.5, server_momentum=0.9, **OPEN),
        lambda: AvgM(0.5, 0.9),
    ),
    "FedAdam": (lambda: flwr.FedAdam(**OPEN), Adam),
    "FedMedian": (lambda: flwr.FedMedian(**OPEN), lambda: median),
    "Krum": (lambda: flwr.Krum(num_malicious_nodes=0, **OPEN), lambda: krum),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BUILT_IN)
def test_five_rounds_around_flowers_own(name: str, dtype: str) -> None:
    """A3-9 with it: the oracles of FedAvgM and FedAdam start each round from the shrunk model."""
    make, aggregate = BUILT_IN[name]
    start = fed.only_parameters(fed.make_model(dtype))
    fed.follow(FedLWS(make(), beta=0.5), start, Oracle(aggregate(), beta=0.5))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["FedAvg", "FedAvgM", "FedAdam", "FedMedian"])
def test_five_rounds_around_flowers_own_with_buffers(name: str, dtype: str) -> None:
    """FedAvgM and FedAdam would take momentum and Adam steps on running statistics: those are averaged."""
    make, aggregate = BUILT_IN[name]
    start = fed.make_model(dtype)
    del start["fc.mask"]
    fed.follow(FedLWS(make(), beta=0.5), start, Oracle(aggregate(), beta=0.5))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", BUILT_IN)
def test_beta_zero_is_flowers_own_bit_for_bit(name: str, dtype: str) -> None:
    """Of models without buffers: in those the wrapper keeps dtypes and averages, Flower's own do not."""
    make, _ = BUILT_IN[name]
    plain, wrapped = make(), FedLWS(make(), beta=0.0)
    model = other = fed.only_parameters(fed.make_model(dtype))
    for server_round in range(1, 6):
        done = fed.play(plain, server_round, model, fed.noisy(), fed.in_order)
        assert done.returned is not None
        # Flower's FedAdam returns float64 whatever it was sent.
        model = {n: array.astype(dtype) for n, array in done.returned.items()}
        got = fed.play(wrapped, server_round, other, fed.noisy()).returned
        assert got is not None
        assert fed.bits(got) == fed.bits(model)
        other = got


@pytest.mark.parametrize("name", ["FedAvg", "FedMedian", "Krum"])
def test_beta_zero_keeps_float_buffers_and_rounds_integer_ones(name: str) -> None:
    """What "bit for bit" means with buffers: Flower's own return an int64 average as float64."""
    make, _ = BUILT_IN[name]
    start = fed.make_model()
    plain = fed.play(make(), 1, start, fed.noisy(), fed.in_order).returned
    wrapped = fed.play(FedLWS(make(), beta=0.0), 1, start, fed.noisy()).returned
    assert plain is not None and wrapped is not None
    assert plain["bn1.num_batches_tracked"].dtype == np.float64
    assert wrapped["bn1.num_batches_tracked"].dtype == np.int64
    assert wrapped["bn1.num_batches_tracked"] == np.rint(plain["bn1.num_batches_tracked"])
    for key in ("bn1.running_mean", "bn1.running_var", "conv1.weight"):
        assert wrapped[key].tobytes() == plain[key].tobytes()


@pytest.mark.parametrize("name", ["FedAvgM", "FedAdam"])
def test_server_optimisers_see_the_shrunk_model_as_their_current_weights(name: str) -> None:
    """A3-9, without an oracle: no updates and no momentum leave the shrunk model where it is, as does A3-11."""
    strategy = (
        flwr.FedAdam(beta_1=0.0, **OPEN) if name == "FedAdam" else flwr.FedAvgM(server_learning_rate=0.5, **OPEN)
    )
    start = fed.only_parameters(fed.make_model(np.float64))
    wrapper = FedLWS(strategy, fixed=[0.5] * 4)
    first = fed.play(wrapper, 1, start, fed.noisy())
    assert first.returned is not None
    second = fed.play(wrapper, 2, first.returned, fed.idle)
    assert second.returned is not None
    for key, array in second.returned.items():
        np.testing.assert_allclose(array, first.returned[key], rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_dtypes_are_kept_around_flowers_own(name: str, dtype: str) -> None:
    start = fed.make_model(dtype)
    for done in fed.rounds(FedLWS(BUILT_IN[name][0](), beta=0.1), start, fed.noisy(), [1, 2]):
        assert done.returned is not None
        assert [(n, a.dtype, a.shape) for n, a in done.returned.items()] == [
            (n, a.dtype, a.shape) for n, a in start.items()
        ]
        assert all(np.isfinite(a).all() for a in done.returned.values())


def frozen(names: Sequence[str]) -> fed.Training:
    """Clients that train all but these arrays."""
    return lambda sent, t: [{**w_k, **{n: sent[n] for n in names}} for w_k in fed.noisy()(sent, t)]


@pytest.mark.parametrize("how", [{}, {"granularity": "model"}, {"grouping": "reference"}, {"fixed": [0.5] * 4}])
@pytest.mark.parametrize("inner", [FedAvg, FedNNNN])
def test_what_nobody_trains_is_not_shrunk(how: dict[str, Any], inner: Any) -> None:
    """A3-11: an array that no client changed keeps the factor 1."""
    start = fed.make_model(np.float64)
    names = ["conv1.bias", "fc.weight"]
    done = fed.play(FedLWS(inner(**OPEN), **({"beta": 5.0} | how)), 1, start, frozen(names))
    assert done.returned is not None
    for name in names:
        assert done.returned[name].tobytes() == start[name].tobytes(), name
    assert done.metrics["fedlws/gamma_max"] < 1.0 or "granularity" not in how


def test_what_nobody_trains_does_not_enter_its_groups_norms() -> None:
    start = fed.make_model(np.float64)
    done = fed.play(FedLWS(FedAvg(**OPEN), beta=5.0), 1, start, frozen(["fc.bias"]))
    alone = {name: array for name, array in start.items() if name != "fc.bias"}
    models = [{n: w_k[n] for n in alone} for w_k in frozen(["fc.bias"])(start, 1)]
    want = ref.fedlws(alone, models, fed.fedavg_oracle(alone, models), beta=5.0)
    assert done.metrics["fedlws/gamma/fc"] == pytest.approx(want["gamma"]["fc"], rel=1e-12)
    assert done.metrics["fedlws/weight/fc"] == pytest.approx(ref.norm(start, ["fc.weight"]), rel=1e-12)


def test_a_group_that_nobody_trains_has_factor_1() -> None:
    start = fed.make_model(np.float64)
    reported = fed.play(FedLWS(FedAvg(**OPEN)), 1, start, frozen(["fc.weight", "fc.bias"])).metrics
    assert (reported["fedlws/gamma/fc"], reported["fedlws/tau/fc"], reported["fedlws/weight/fc"]) == (
        1.0,
        0.0,
        0.0,
    )


def test_with_fixed_factors_what_was_applied_is_reported() -> None:
    """A3-10: gamma and r are those of the factors given; a model-wise gamma there is none."""
    start = fed.make_model(np.float64)
    reported = fed.play(FedLWS(FedAvg(**OPEN), fixed=[0.9, 0.8, 0.7, 0.6]), 1, start, fed.noisy()).metrics
    assert [reported[f"fedlws/gamma/{layer}"] for layer in ref.layers(start)] == [0.9, 0.8, 0.7, 0.6]
    assert "fedlws/gamma_model" not in reported
    w, s = reported["fedlws/weight/fc"], reported["fedlws/step/fc"]
    assert reported["fedlws/r/fc"] == pytest.approx(0.3 * w / (0.7 * s), rel=1e-12)


def test_with_a_clamp_r_is_the_clamped_product() -> None:
    start = fed.make_model(np.float64)
    reported = fed.play(FedLWS(FedAvg(**OPEN), beta=0.1, tau_min=0.5), 1, start, fed.noisy()).metrics
    assert reported["fedlws/tau/fc"] * 0.1 < 0.5
    assert reported["fedlws/r/fc"] == pytest.approx(0.5, rel=1e-9)


def test_patterns_end_groups() -> None:
    """A3-3: as the published code groups its ViT, a transformer block a group."""
    names = [f"blocks.{b}.{n}" for b in (0, 1) for n in ("att.bias", "mlp.fc1.bias", "mlp.fc2.bias")]
    model = {name: np.ones(1) for name in ["embed", *names, "head.weight", "head.bias", "scale"]}
    got = fedlws.groups(model, grouping=["*.mlp.fc2.bias", "head.bias"])
    assert list(got.values()) == [
        ("embed", *names[:3]),
        tuple(names[3:]),
        ("head.weight", "head.bias", "scale"),
    ]
    assert fedlws.groups(model, grouping=["*bias*"]) == fedlws.groups(model, grouping="reference")


def test_a_pattern_that_fits_nothing_is_refused() -> None:
    strategy = FedLWS(FedAvg(**OPEN), grouping=["*.bias", "head.*"])
    with pytest.raises(
        ConfigError, match=r"grouping = 'head\.\*' is not allowed: grouping must be a name or pattern"
    ):
        fed.configure(strategy, 1, fed.make_model())


# ---------------------------------------------------------------- torch


@pytest.mark.parametrize("terms", ["both", "optimization", "regularization"])
def test_torch_tensors_give_the_same_numbers(terms: str) -> None:
    sent = fed.make_model(np.float64)
    clients = fed.noisy()(sent, 1)
    result = fedavg.aggregate(sent, clients, SHARES)
    torch_sent, torch_result = fed.to_torch(sent), fed.to_torch(result)
    torch_clients = [fed.to_torch(client) for client in clients]
    gamma = {}
    for names in fedlws.groups(torch_sent).values():
        got = factor_from(torch_sent, torch_clients, torch_result, names, beta=0.1)
        assert got == pytest.approx(factor_from(sent, clients, result, names, beta=0.1), rel=1e-12)
        gamma |= dict.fromkeys(names, got.gamma)
    fed.assert_same_numbers(
        fedlws.shrunk(torch_sent, torch_result, gamma, terms=terms),
        fedlws.shrunk(sent, result, gamma, terms=terms),
    )
