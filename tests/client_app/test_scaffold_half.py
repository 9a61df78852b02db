"""The client half of SCAFFOLD: the worked example T2 of docs/methods.md, and other properties."""

from __future__ import annotations

import numpy as np
import pytest
from client_talk import fednlr, initial, message, node, round_config, same, sgd, train
from flwr.app import ConfigRecord, MessageType, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st
from toy import Gradient, Played, Rates, gradient_a, gradient_b, play

from client_app.app import app
from fedstride.arrays.float64_sums import difference
from fedstride.arrays.named import Arrays, views
from fedstride.errors import ConfigError
from fedstride.messages import wire

HALF = {wire.HALVES: ["scaffold"]}


class Server:
    """The server's equations SC3 with server rate 1 and SC4 (N = 2 clients), and the clients' states."""

    def __init__(self) -> None:
        self.w, self.c = 1.0, 0.0
        self.states: dict[Gradient, dict] = {}
        self.deltas: dict[Gradient, float] = {}

    def round(self, *cohort: Gradient, **options: object) -> None:
        done = {k: self.client(k, **options) for k in cohort}
        self.deltas = {k: float(d.w[0]) - self.w for k, d in done.items()}
        self.w += sum(self.deltas.values()) / len(cohort)
        self.c += sum(float(d.output.arrays["scaffold.delta"]["w"][0]) for d in done.values()) / 2
        self.states |= {k: d.state for k, d in done.items()}

    def client(self, gradient: Gradient, **options: object) -> Played:
        state = self.states.get(gradient)
        return play(gradient, self.w, half="scaffold", arrays={"control": self.c}, state=state, **options)

    def control_of(self, gradient: Gradient) -> float:
        return float(self.states[gradient]["w"][0])


def test_t2_with_all_clients() -> None:
    server = Server()
    server.round(gradient_a, gradient_b)
    assert server.w == pytest.approx(1.17, abs=1e-9)
    assert [server.control_of(k) for k in (gradient_a, gradient_b)] == pytest.approx([-3.6, 1.9], abs=1e-9)
    assert server.c == pytest.approx(-0.85, abs=1e-9)
    server.round(gradient_a, gradient_b)
    assert list(server.deltas.values()) == pytest.approx([0.1638, 0.1102], abs=1e-9)
    assert [server.control_of(k) for k in (gradient_a, gradient_b)] == pytest.approx([-3.569, 2.199], abs=1e-9)
    assert (server.c, server.w) == pytest.approx((-0.685, 1.307), abs=1e-9)


def test_t2_with_one_client_a_round() -> None:
    server = Server()
    server.round(gradient_a)
    assert (server.w, server.c) == pytest.approx((1.72, -1.8), abs=1e-9)
    server.round(gradient_b)
    assert server.deltas[gradient_b] == pytest.approx(-0.1748, abs=1e-9)
    assert server.control_of(gradient_b) == pytest.approx(2.674, abs=1e-9)
    assert (server.c, server.w) == pytest.approx((-0.463, 1.5452), abs=1e-9)


def test_t2_with_momentum_in_round_two() -> None:
    server = Server()
    server.round(gradient_a, gradient_b)
    done = server.client(gradient_a, momentum=0.9)
    assert done.w[0] == pytest.approx(1.6632, abs=1e-9)
    assert done.state["w"][0] == pytest.approx(-5.216, abs=1e-9)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([(gradient_a,), (gradient_b,), (gradient_a, gradient_b)]), max_size=6))
def test_the_servers_control_is_the_mean_of_the_clients(cohorts: list[tuple[Gradient, ...]]) -> None:
    server = Server()
    for cohort in cohorts:
        server.round(*cohort)
    kept = [float(state["w"][0]) for state in server.states.values()]
    assert server.c == pytest.approx(sum(kept) / 2, abs=1e-12)


def test_clients_with_equal_data_are_like_fedavg() -> None:
    """Full batches and full participation: c_k = c, so nothing is corrected."""
    w, c, state = 1.0, 0.0, None
    plain = 1.0
    for _ in range(4):
        done = play(gradient_a, w, half="scaffold", arrays={"control": c}, state=state)
        plain = float(play(gradient_a, plain).w[0])
        w, c, state = float(done.w[0]), float(done.state["w"][0]), done.state
        assert w == pytest.approx(plain, abs=1e-12)


def test_each_element_has_the_rate_of_its_neuron() -> None:
    """B-37: w = (1, 1), rates 0.1 * (2, 0.5), c = 0.4 and c_k = (1, -1), one step at gradient -4 each."""
    state, sent = {"w": np.array([1.0, -1.0])}, {"control": [0.4, 0.4]}
    done = play(gradient_a, [1.0, 1.0], Rates([2.0, 0.5]), half="scaffold", arrays=sent, state=state, tau=1)
    # w - rate (g + c - c_k) = 1 - 0.2 (-4 - 0.6), 1 - 0.05 (-4 + 1.4)
    assert done.w == pytest.approx([1.92, 1.13], abs=1e-12)
    # c_k+ = c_k - c + (w^t - w_k) / H = g, the direction of the only step, for each element
    assert done.state["w"] == pytest.approx([-4.0, -4.0], abs=1e-12)
    assert done.output.arrays["scaffold.delta"]["w"] == pytest.approx([-5.0, -3.0], abs=1e-12)


def test_an_element_with_rate_zero_keeps_its_control() -> None:
    state = {"w": np.array([1.0, -1.0])}
    done = play(
        gradient_a, [1.0, 1.0], Rates([0.0, 1.0]), half="scaffold", arrays={"control": [0.4, 0.4]}, state=state
    )
    assert done.state["w"][0] == 1.0
    assert done.output.arrays["scaffold.delta"]["w"][0] == 0.0
    assert np.isfinite(done.state["w"]).all()


# ---------------------------------------------------------------- through the ClientApp


def answer(config: ConfigRecord, control: Arrays, context: object = None) -> tuple[Arrays, RecordDict]:
    request = message(MessageType.TRAIN, config, initial(), scaffold__control=control)
    reply = app(request, context or node()).content
    return views(reply.array_records[wire.ARRAYS]), reply


def zeros() -> Arrays:
    return {name: np.zeros_like(array) for name, array in initial().items()}


@pytest.mark.parametrize(
    "client", [sgd(), sgd(momentum=0.9, weight_decay=1e-3), fednlr()], ids=["sgd", "m", "fednlr"]
)
def test_round_one_has_fedavgs_bits(client: object) -> None:
    model, reply = answer(round_config(client=client, **HALF), zeros())
    assert same(model, train(round_config(client=client))[0])
    assert reply.metric_records[wire.METRICS][wire.done("scaffold")] == 1
    assert list(reply.array_records) == [wire.ARRAYS, "scaffold.delta"]


def test_delta_is_the_mean_direction_in_the_models_dtype() -> None:
    """From c = c_k = 0: delta = (w^t - w_k) / (tau eta)."""
    model, reply = answer(round_config(client=sgd(lr=0.05, batch_size=20), **HALF), zeros())
    delta = views(reply.array_records["scaffold.delta"])
    moved = difference(initial(), model, list(model))
    for name, array in delta.items():
        assert array.dtype == np.float32
        np.testing.assert_allclose(array, moved[name] / (5 * 0.05), rtol=1e-6, atol=1e-9)


def test_the_second_round_is_corrected() -> None:
    context = node()
    config = round_config(client=sgd(), **HALF)
    answer(config, zeros(), context)
    model, _ = answer(config, zeros(), context)  # c stays 0, c_k does not
    assert not same(model, train(round_config(client=sgd()))[0])


@pytest.mark.parametrize(
    ("control", "said"),
    [
        (
            {"fc1.weight": np.zeros((200, 784), np.float32)},
            "scaffold.control does not fit this client's network: 'fc1.bias' is missing",
        ),
        (
            zeros() | {"fc2.bias": np.zeros(3, np.float32)},
            r"'fc2.bias' has shape \(3,\), but the parameter has \(10,\)",
        ),
    ],
)
def test_a_control_of_another_model_is_refused(control: Arrays, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        answer(round_config(**HALF), control)


def test_zeros_are_returned_for_frozen_parameters() -> None:
    """The server does not know which parameters are frozen, and expects an array for each control that it sent."""
    _, reply = answer(round_config(**HALF), zeros() | {"frozen.weight": np.ones((2, 3), np.float32)})
    deltas = views(reply.array_records["scaffold.delta"])
    assert set(deltas) == {*zeros(), "frozen.weight"}
    assert deltas["frozen.weight"].tolist() == [[0.0] * 3] * 2


def test_a_missing_control_is_named() -> None:
    with pytest.raises(ConfigError, match=r"not contain scaffold\.control, which scaffold needs"):
        train(round_config(**HALF))


def test_scaffold_cannot_be_used_with_a_protected_update() -> None:
    config = round_config(**HALF, **{wire.CLIPPING_NORM: 1.0})
    with pytest.raises(ConfigError, match=r"scaffold\.delta would be sent unprotected"):
        answer(config, zeros())


@pytest.mark.parametrize("sent", [0.0, 0.4, -3.0])
def test_the_control_itself_is_returned_where_the_server_recovers(sent: float) -> None:
    state = {"w": np.array([1.5])}
    told = play(gradient_a, 1.0, half="scaffold", arrays={"control": sent}, state=state, values={"recover": True})
    plain = play(gradient_a, 1.0, half="scaffold", arrays={"control": sent}, state=state)
    assert told.state["w"] == plain.state["w"] and told.w == plain.w
    assert list(told.output.arrays) == ["scaffold.client_control"]
    assert told.output.arrays["scaffold.client_control"]["w"] == told.state["w"]
    assert plain.output.arrays["scaffold.delta"]["w"] == told.state["w"] - state["w"]
