"""The client half of FedDyn: the worked example T2 of docs/methods.md, and other properties."""

from __future__ import annotations

import math

import numpy as np
import pytest
from client_talk import fednlr, initial, round_config, same, sgd, train
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import Gradient, Rates, gradient_a, gradient_b, play

from client_app.for_server_rules.feddyn import Half
from client_app.training.method import Received
from fedstride.errors import ConfigError
from fedstride.messages import wire

COHORTS = st.lists(st.sampled_from([(gradient_a,), (gradient_b,), (gradient_a, gradient_b)]), max_size=6)


def half(alpha: float) -> dict[str, object]:
    return {wire.HALVES: ["feddyn"], "feddyn.alpha": alpha}


class Server:
    """The server's equations DY4 (N = 2 clients) and DY5, and the clients' states."""

    def __init__(self, alpha: float = 0.1) -> None:
        self.alpha, self.w, self.memory = alpha, 1.0, 0.0
        self.states: dict[Gradient, dict] = {}
        self.models: dict[Gradient, float] = {}

    def round(self, *cohort: Gradient) -> None:
        done = {
            k: play(k, self.w, half="feddyn", values={"alpha": self.alpha}, state=self.states.get(k))
            for k in cohort
        }
        self.models = {k: float(d.w[0]) for k, d in done.items()}
        self.states |= {k: d.state for k, d in done.items()}
        self.memory += sum(w - self.w for w in self.models.values()) / 2
        self.w = sum(self.models.values()) / len(cohort) + self.memory


def test_t2_with_all_clients() -> None:
    server = Server()
    server.round(gradient_a, gradient_b)
    assert list(server.models.values()) == pytest.approx([1.716, 0.622], abs=1e-9)
    assert (server.memory, server.w) == pytest.approx((0.169, 1.338), abs=1e-9)
    server.round(gradient_a, gradient_b)
    assert list(server.models.values()) == pytest.approx([1.9201796, 0.9032622], abs=1e-9)
    kept = [float(server.states[k]["w"][0]) for k in (gradient_a, gradient_b)]
    assert kept == pytest.approx([1.2981796, -0.8127378], abs=1e-9)
    assert (server.memory, server.w) == pytest.approx((0.2427209, 1.6544418), abs=1e-9)


def test_t2_with_one_client_a_round() -> None:
    server = Server()
    server.round(gradient_a)
    assert server.w == pytest.approx(2.074, abs=1e-9)
    server.round(gradient_b)
    assert server.models[gradient_b] == pytest.approx(1.493014, abs=1e-9)
    assert (server.memory, server.w) == pytest.approx((0.067507, 1.560521), abs=1e-9)


@settings(max_examples=25, deadline=None)
@given(COHORTS)
def test_the_servers_memory_is_the_mean_of_the_clients(cohorts: list[tuple[Gradient, ...]]) -> None:
    server = Server()
    for cohort in cohorts:
        server.round(*cohort)
    kept = [float(state["w"][0]) for state in server.states.values()]
    assert server.memory == pytest.approx(sum(kept) / 2, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(COHORTS, st.floats(0.01, 1.0))
def test_the_result_equals_that_of_the_papers_form(cohorts: list[tuple[Gradient, ...]], alpha: float) -> None:
    """Algorithm 1: L_k <- L_k - alpha (w_k - w^t), step g - L_k + alpha (w - w^t); the server mean - h / alpha."""
    server, w_t, h = Server(alpha), 1.0, 0.0
    linear = {gradient_a: 0.0, gradient_b: 0.0}
    for cohort in cohorts:
        server.round(*cohort)
        models = []
        for k in cohort:
            w = w_t
            for _ in range(2):
                w -= 0.1 * (float(k(w)) - linear[k] + alpha * (w - w_t))
            linear[k] -= alpha * (w - w_t)
            models.append(w)
        h -= alpha * sum(w - w_t for w in models) / 2
        w_t = sum(models) / len(models) - h / alpha
    assert server.w == pytest.approx(w_t, abs=1e-9)


@pytest.mark.parametrize("gradient", [gradient_a, gradient_b])
def test_the_first_step_is_fedavgs(gradient: Gradient) -> None:
    done = play(gradient, 1.0, half="feddyn", values={"alpha": 0.3}, tau=1)
    assert done.w[0] == play(gradient, 1.0, tau=1).w[0]


def test_the_memory_contains_the_displacements_for_any_rates() -> None:
    """B-37: nothing is rescaled; the neuron's rate multiplies the gradient, the penalty and the memory."""
    start = {"w": np.array([0.5, 0.5])}
    done = play(
        gradient_a, [1.0, 1.0], Rates([2.0, 0.5]), half="feddyn", values={"alpha": 0.2}, state=start, tau=1
    )
    assert done.w == pytest.approx([1.0 + 0.2 * 3.9, 1.0 + 0.05 * 3.9], abs=1e-12)
    assert done.state["w"] == pytest.approx(start["w"] + done.w - 1.0, abs=1e-12)


@pytest.mark.parametrize(
    "client", [sgd(), sgd(momentum=0.9, weight_decay=1e-3), fednlr()], ids=["sgd", "m", "fednlr"]
)
def test_alpha_zero_has_fedavgs_bits(client: object) -> None:
    model, metrics = train(round_config(client=client, **half(0.0)))
    assert same(model, train(round_config(client=client))[0])
    assert metrics[wire.done("feddyn")] == 1


def test_only_the_model_is_returned() -> None:
    model, metrics = train(round_config(**half(0.1)))
    assert not same(model, train(round_config())[0])
    assert list(model) == list(initial())
    assert not [key for key in metrics if key.startswith("feddyn")]


@pytest.mark.parametrize("alpha", [-0.1, math.nan, math.inf, "0.1", True, [0.1]])
def test_alpha_out_of_range_is_refused(alpha: object) -> None:
    with pytest.raises(ConfigError, match=r"feddyn\.alpha = .* is not allowed"):
        Half().begin(None, Received("feddyn", {"alpha": alpha}), {})


# ---------------------------------------------------------------- what the server believes


def test_the_memory_is_returned_where_the_server_asks_for_it() -> None:
    done = play(gradient_a, 1.0, half="feddyn", values={"alpha": 0.1, "names": ["w"]})
    assert done.output.arrays["feddyn.client_memory"]["w"] == done.state["w"]
    assert set(done.state) == {"w"}
    plain = play(gradient_a, 1.0, half="feddyn", values={"alpha": 0.1})
    assert plain.w == done.w and plain.state["w"] == done.state["w"] and not plain.output.arrays


def test_a_memory_from_before_a_restart_is_forgotten() -> None:
    def after(restarts: int, state: dict | None) -> dict:
        values = {"alpha": 0.1, "names": ["w"], "restarts": restarts}
        return dict(play(gradient_a, 1.0, half="feddyn", values=values, state=state).state)

    first = after(0, None)
    fresh = after(1, first)
    assert fresh["w"] == first["w"] and fresh["restarts of feddyn"] == 1
    assert after(1, fresh)["w"] != fresh["w"]  # a second round with it
    for jump in (2, 7):  # a client that was away
        assert after(jump, fresh)["w"] == first["w"]
    assert after(0, first)["w"] != first["w"]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ("w", "must be a list of names"),
        ([1], "must be a list of names"),
        (["fc1.weight", "fc9.weight"], "it has no 'fc9.weight'"),
        (["", "fc1.weight"], "it has no ''"),
    ],
)
def test_names_that_the_network_does_not_have_are_refused(names: object, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"feddyn\.names .*{said}"):
        train(round_config(**half(0.1), **{"feddyn.names": names}))
