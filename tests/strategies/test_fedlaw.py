"""FedLAW: worked numbers, an independent computation with a linear softmax model, identities, refusals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import federation as fed
import numpy as np
import pytest
import reference as ref
from federation import OPEN, SHARES, Quadratic, printed
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from fedstride import seeds
from fedstride.arrays.named import views
from fedstride.errors import ConfigError
from strategies import AWD, AdaDecay, FedLAW, FedLWS, TwoDLRD, fedavg
from strategies.fedlaw import Adam, Gradient, Mixture, learnt, softmax

SENT: Model = {"w": np.array([1.0, -2.0])}  # the toy problem T1
CLIENTS: list[Model] = [{"w": np.array([0.8, -1.5])}, {"w": np.array([0.6, -2.1])}]
P = [0.25, 0.75]
START = [math.log(0.25), math.log(0.75), 0.0]
KEPT: dict[str, Any] = {"batch_size": 128, "seed": 1, "server_round": 1, "lr": 0.01}


class Toward:
    """A proxy set whose loss is half the squared distance to a point."""

    def __init__(self, *target: float) -> None:
        self.target = np.array(target)

    def __len__(self) -> int:
        return 5

    def gradient(self, model: Model, positions: np.ndarray, seed: int) -> Gradient:
        away = model["w"] - self.target
        return Gradient(float((away**2).sum() / 2), {"w": away}, {})


# ---------------------------------------------------------------- the worked example T1


def test_worked_gradient() -> None:
    mixture = Mixture.of(SENT, CLIENTS)
    at_w = Toward(0.5, -1.5).gradient(mixture.at(START, {}), np.arange(5), 0)
    assert mixture.gradient(START, at_w.parameters) == [printed(-0.045), printed(0.045), printed(0.975)]


@pytest.mark.parametrize(
    ("epochs", "gamma", "weights", "returned"),
    [
        (1, 0.9900498339, (0.2537687171, 0.7462312829), (0.6442786356, -1.9283584454)),
        (3, 0.9708042634, (0.2612957183, 0.7387042817), (0.6332159575, -1.8864887548)),
    ],
)
def test_worked_steps(epochs: int, gamma: float, weights: Any, returned: Any) -> None:
    found = learnt(SENT, CLIENTS, P, Toward(0.5, -1.5), epochs=epochs, **KEPT)
    assert (found.gamma, tuple(found.weights)) == (printed(gamma), (printed(weights[0]), printed(weights[1])))
    assert found.model["w"] == printed(list(returned))
    assert len(found.losses) == epochs and found.losses[0] == printed(0.1125)


# ---------------------------------------------------------------- an independent computation


class LinearSoftmax:
    """Cross-entropy of softmax(x W + b) in float64; a buffer follows the mean of x, as BatchNorm's does."""

    def __init__(self, count: int = 11) -> None:
        rng = np.random.default_rng(8)
        self.x, self.y = rng.standard_normal((count, 3)), rng.integers(0, 4, count)

    def __len__(self) -> int:
        return len(self.y)

    def loss(self, W: np.ndarray, b: np.ndarray, positions: np.ndarray) -> float:
        z = self.x[positions] @ W + b
        return float(np.mean(np.log(np.exp(z).sum(1)) - z[np.arange(len(z)), self.y[positions]]))

    def gradient(self, model: Model, positions: np.ndarray, seed: int) -> Gradient:
        W, b = ref.f64(model["fc.weight"]), ref.f64(model["fc.bias"])
        x, y = self.x[positions], self.y[positions]
        z = np.exp(x @ W + b)
        error = (z / z.sum(1, keepdims=True) - np.eye(4)[y]) / len(y)
        mean = 0.9 * model["bn.running_mean"] + 0.1 * x.mean(0)
        return Gradient(
            self.loss(W, b, positions),
            {"fc.weight": x.T @ error, "fc.bias": error.sum(0), "frozen": np.ones(2)},
            {"bn.running_mean": mean},
        )


def linear_model(dtype: str, seed: int = 3) -> Model:
    rng = np.random.default_rng(seed)
    model = {"fc.weight": rng.standard_normal((3, 4)), "fc.bias": rng.standard_normal(4), "frozen": np.ones(2)}
    return {n: a.astype(dtype) for n, a in model.items()} | {"bn.running_mean": np.zeros(3, dtype)}


def linear_clients(sent: Model, server_round: int, m: int = 3) -> list[Model]:
    rng = np.random.default_rng([server_round])
    moving = ("fc.weight", "fc.bias", "bn.running_mean")
    return [
        {
            n: (a + 0.2 * rng.standard_normal(a.shape)).astype(a.dtype) if n in moving else a
            for n, a in sent.items()
        }
        for _ in range(m)
    ]


def oracle(
    sent: Model, clients: Sequence[Model], p: Sequence[float], *, round_: int, epochs: int, lr: float, batch: int
) -> Model:
    """(LA1) to (LA3), with derivatives by central differences of the loss of W(x, g), and torch's form of Adam."""
    proxy = LinearSoftmax()
    theta = np.array([*np.log(p), 0.0])
    m, v, mean = np.zeros_like(theta), np.zeros_like(theta), ref.f64(sent["bn.running_mean"])

    def mixed(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        share = np.exp(theta[:-1]) / np.exp(theta[:-1]).sum()
        W = np.exp(theta[-1]) * np.einsum("k,kij->ij", share, np.array([ref.f64(c["fc.weight"]) for c in clients]))
        return W, np.exp(theta[-1]) * share @ np.array([ref.f64(c["fc.bias"]) for c in clients])

    count = 0
    for epoch in range(epochs):
        order = seeds.generator(7, "fedlaw", round_, epoch).permutation(len(proxy))
        for positions in (order[i : i + batch] for i in range(0, len(order), batch)):
            steps = 1e-6 * np.eye(len(theta))
            g = np.array(
                [
                    (proxy.loss(*mixed(theta + h), positions) - proxy.loss(*mixed(theta - h), positions)) / 2e-6
                    for h in steps
                ]
            )
            count += 1
            m, v = 0.5 * m + 0.5 * g, 0.999 * v + 0.001 * g * g
            rate = lr / 2 ** (epoch // 20)
            theta = theta - rate * (m / (1 - 0.5**count)) / (np.sqrt(v / (1 - 0.999**count)) + 1e-8)
            mean = 0.9 * mean + 0.1 * proxy.x[positions].mean(0)
    W, b = mixed(theta)
    return {"fc.weight": W, "fc.bias": b, "frozen": sent["frozen"], "bn.running_mean": mean}


@pytest.mark.parametrize("epochs", [0, 4, 45])
def test_rounds_with_other_clients_each_time(epochs: int) -> None:
    start = linear_model("float64")
    strategy = FedLAW(proxy=LinearSoftmax(), server_epochs=epochs, lr=0.02, batch_size=4, seed=7, **OPEN)
    model, expected = start, start
    for number, who in enumerate(([0, 1], [1, 2], [2], [0, 1, 2]), 1):
        message = fed.configure(strategy, number, model)[0]
        clients = linear_clients(fed.model_in(message), number)
        examples = [10 * (k + 1) for k in who]
        arrived = [fed.reply(k + 1, clients[k], n, to=message) for k, n in zip(who, examples, strict=True)]
        record, metrics = strategy.aggregate_train(number, arrived[::-1])
        p = [n / sum(examples) for n in examples]
        mine = linear_clients(expected, number)
        mine = [mine[k] for k in who]
        expected = oracle(expected, mine, p, round_=number, epochs=epochs, lr=0.02, batch=4)
        model = views(record)
        fed.assert_close(model, expected, start, 1e-7)  # central differences have eight digits
        assert metrics["fedlaw/proxy_examples"] == 11
        assert ("fedlaw/loss_last" in metrics) == (epochs > 0)


def test_the_loss_falls() -> None:
    sent = linear_model("float64")
    found = learnt(sent, linear_clients(sent, 1), SHARES, LinearSoftmax(), epochs=60, **KEPT)
    assert found.losses[-1] < found.losses[0]


# ---------------------------------------------------------------- identities


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_without_epochs_it_has_fedavgs_parameters_and_the_buffers_that_were_sent(dtype: str) -> None:
    sent = fed.make_model(dtype)
    clients = fed.noisy()(sent, 1)
    found = learnt(sent, clients, SHARES, Quadratic(), epochs=0, **KEPT)
    want = fedavg.aggregate(sent, clients, SHARES)
    names = ref.parameters(sent)
    fed.assert_close({n: found.model[n] for n in names}, {n: want[n] for n in names}, fed.only_parameters(sent))
    for name in set(sent) - set(names):
        assert found.model[name].tobytes() == sent[name].tobytes()


@fed.PROPERTY
@given(fed.cohorts(m=3), st.floats(-3, 3), st.integers(0, 50))
def test_the_gradient_is_the_derivative(cohort: fed.AnyCohort, g: float, seed: int) -> None:
    """Against central differences of <G, W>, which is linear in W."""
    sent, clients, shares = cohort
    mixture = Mixture.of(sent, clients)
    rng = np.random.default_rng(seed)
    G = {n: rng.standard_normal(np.shape(sent[n])) for n in ref.parameters(sent)}
    values = [*map(math.log, shares), g]

    def at(values: Sequence[float]) -> float:
        weights, gamma = softmax(values[:-1]), math.exp(values[-1])
        return gamma * sum(
            share * float((ref.f64(w_k[n]) * G[n]).sum())
            for share, w_k in zip(weights, clients, strict=True)
            for n in mixture.names
        )

    scale = 1.0 + abs(at(values))
    for i, got in enumerate(mixture.gradient(values, G)):
        h = [1e-6 * (j == i) for j in range(len(values))]
        up, down = (at([v + sign * e for v, e in zip(values, h, strict=True)]) for sign in (1.0, -1.0))
        assert got == pytest.approx((up - down) / 2e-6, abs=1e-6 * scale * 10)


@fed.PROPERTY
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=6), st.floats(-3, 3))
def test_a_shift_of_x_changes_nothing(x: list[float], shift: float) -> None:
    assert softmax([each + shift for each in x]) == pytest.approx(softmax(x), rel=1e-12)
    assert sum(softmax(x)) == pytest.approx(1.0, abs=1e-12)


def test_equal_models_leave_the_weights() -> None:
    clients = [CLIENTS[0]] * 3
    found = learnt(SENT, clients, SHARES, Toward(3.0, 3.0), epochs=30, **KEPT)
    assert found.weights == pytest.approx(SHARES, abs=1e-8)  # Adam enlarges rounding errors
    assert found.gamma != 1.0
    assert found.model["w"] == pytest.approx(found.gamma * CLIENTS[0]["w"], abs=1e-12)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=5), st.floats(1e-6, 1.0))
@fed.PROPERTY
def test_adams_first_step(gradient: list[float], rate: float) -> None:
    adam = Adam([0.0] * len(gradient))
    adam.step(gradient, rate)
    wanted = [-rate * g / (abs(g) + 1e-8) for g in gradient]
    assert adam.values == pytest.approx(wanted, rel=1e-9, abs=1e-300)


def test_gamma_can_exceed_one() -> None:
    """It is not clamped (B-29)."""
    assert learnt(SENT, CLIENTS, P, Toward(2.0, -6.0), epochs=20, **KEPT).gamma > 1.1


def test_a_frozen_parameter_is_not_shrunk_and_unchanged_models_are_returned() -> None:
    sent = linear_model("float32")
    found = learnt(sent, linear_clients(sent, 1), SHARES, LinearSoftmax(), epochs=3, **KEPT)
    assert found.model["frozen"].tobytes() == sent["frozen"].tobytes()
    assert found.model["fc.bias"].tobytes() != sent["fc.bias"].tobytes()
    idle = learnt(sent, [dict(sent)] * 3, SHARES, LinearSoftmax(), epochs=3, **KEPT)
    assert fed.bits(idle.model) == fed.bits(sent) and idle.losses == []


def test_buffers_come_from_the_proxy_set() -> None:
    """And not from the clients: they begin as they were sent."""
    sent = linear_model("float64")
    proxy = LinearSoftmax()
    found = learnt(sent, linear_clients(sent, 1), SHARES, proxy, epochs=2, **KEPT)
    want = 0.9 * (0.1 * proxy.x.mean(0)) + 0.1 * proxy.x.mean(0)
    assert found.model["bn.running_mean"] == pytest.approx(want, abs=1e-12)


def test_one_round_does_not_depend_on_others_and_a_fresh_strategy_continues() -> None:
    made = [FedLAW(proxy=LinearSoftmax(), server_epochs=5, batch_size=4, seed=7, **OPEN) for _ in range(2)]
    start = linear_model("float32")
    first = fed.play(made[0], 1, start, linear_clients)
    assert first.returned is not None
    made[1].load_state_dict(made[0].state_dict())
    one, other = (fed.play(each, 2, first.returned, linear_clients) for each in made)
    assert fed.bits(one.returned or {}) == fed.bits(other.returned or {})


def test_a_gradient_that_is_not_finite_voids_the_round() -> None:
    class Broken(Toward):
        def gradient(self, model: Model, positions: np.ndarray, seed: int) -> Gradient:
            return Gradient(math.nan, {"w": np.array([math.nan, 0.0])}, {})

    done = fed.play(FedLAW(proxy=Broken(), **OPEN), 1, SENT, fed.noisy())
    assert done.returned is None and done.metrics["screening/not_finite"] == 1


# ---------------------------------------------------------------- refusals


def test_without_a_proxy_set_the_first_round_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^proxy = None is not allowed: .*a proxy set with a network"):
        fed.configure(FedLAW(**OPEN), 1, SENT)


@pytest.mark.parametrize("wrapper", [FedLWS, AdaDecay, AWD])
def test_a_second_shrinking_is_refused(wrapper: Any) -> None:
    with pytest.raises(ConfigError, match=r"^strategy = 'FedLAW' .*FedLAW learns its own factor"):
        wrapper(FedLAW(proxy=Toward(), **OPEN))
    with pytest.raises(ConfigError, match=r"FedLAW learns its own factor|TwoDLRD"):
        wrapper(TwoDLRD(FedLAW(proxy=Toward(), **OPEN)))


def test_a_last_batch_of_one_example_is_refused_with_batchnorm() -> None:
    strategy = FedLAW(proxy=LinearSoftmax(11), batch_size=5, **OPEN)
    strategy.check_model(SENT)
    with pytest.raises(ConfigError, match=r"^batch_size = 5 is not allowed: .*a single example of 11"):
        strategy.check_model(fed.make_model())
    FedLAW(proxy=LinearSoftmax(11), batch_size=4, **OPEN).check_model(fed.make_model())


@pytest.mark.parametrize(("key", "value"), [("lr", 0.0), ("server_epochs", -1), ("batch_size", 0)])
def test_values_out_of_range(key: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{key} = "):
        FedLAW(**{key: value})
