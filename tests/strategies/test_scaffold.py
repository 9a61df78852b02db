"""SCAFFOLD at the server: the pure step, the strategy, and what clients must hand back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import federation as fed
import numpy as np
import pytest
import reference as ref
from federation import NODES, OPEN, UNIFORM, printed
from flwr.app import Array, ArrayRecord, Message
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from fedstride.arrays.named import to_record, views
from fedstride.errors import ConfigError
from fedstride.messages import wire
from strategies import DifferentialPrivacy, FedAvg, FedLWS, NormAnalysis, Scaffold, TwoDLRD, fedavg, scaffold
from strategies.scaffold import ScaffoldState

CONTROL, KEPT = "scaffold.control", "scaffold.client_control"
RATES = [0.1, 0.1]  # the toy problem T2
POINT: Model = {"w": np.array([1.0])}
GRADIENTS: list[ref.Gradient] = [lambda w: {"w": 2.0 * (w["w"] - 3.0)}, lambda w: {"w": w["w"] + 1.0}]
A, B = 0, 1


def parameters(seed: int, model: Model, m: int = 3) -> list[Model]:
    """Something of the form of delta_k, for each client."""
    rng = np.random.default_rng(seed)
    return [
        {n: rng.normal(size=model[n].shape).astype(model[n].dtype) for n in ref.parameters(model)}
        for _ in range(m)
    ]


def handed(node: int, model: Model, control: Any) -> Message:
    """A reply with this c_k+; None: without any."""
    message = fed.reply(node, model, metrics={wire.done("scaffold"): 1})
    if control is not None:
        message.content[KEPT] = control if isinstance(control, ArrayRecord) else to_record(control)
    return message


def control_in(message: Message) -> Model:
    return views(message.content[CONTROL])


class Clients:
    """Clients that do their half in float64, a few plain lines of the oracle; c is what the message holds."""

    def __init__(self, num_clients: int, gradients: Sequence[ref.Gradient]) -> None:
        self.rule, self.gradients = ref.Scaffold(num_clients), gradients

    def round(
        self, strategy: Scaffold, number: int, model: Model, who: Sequence[int]
    ) -> tuple[Model, list[float]]:
        """The model that is returned, and Delta_k."""
        message = fed.configure(strategy, number, model)[0]
        self.rule.c = control_in(message)
        sent = fed.model_in(message)
        done = [self.rule.client(k, sent, self.gradients[k], RATES) for k in who]
        kept = self.rule.of_client
        replies = [handed(k + 1, w_k, kept[k]) for k, (w_k, _) in zip(who, done, strict=True)]
        record, _ = strategy.aggregate_train(number, replies[::-1])
        return views(record), [float((w_k["w"] - sent["w"])[0]) for w_k, _ in done]


# ---------------------------------------------------------------- the worked example T2


def test_worked_with_all_clients() -> None:
    strategy, clients = Scaffold(num_clients=2, **OPEN), Clients(2, GRADIENTS)
    first, _ = clients.round(strategy, 1, POINT, [A, B])
    assert first["w"] == printed([1.17])
    assert strategy.state.control["w"] == printed([-0.85])
    second, moved = clients.round(strategy, 2, first, [A, B])
    assert moved == [printed(0.1638), printed(0.1102)]
    assert [clients.rule.of_client[k]["w"][0] for k in (A, B)] == [printed(-3.569), printed(2.199)]
    assert (strategy.state.control["w"], second["w"]) == (printed([-0.685]), printed([1.307]))


def test_worked_with_one_client_a_round() -> None:
    strategy, clients = Scaffold(num_clients=2, **OPEN), Clients(2, GRADIENTS)
    first, _ = clients.round(strategy, 1, POINT, [A])
    assert (first["w"], strategy.state.control["w"]) == (printed([1.72]), printed([-1.8]))
    second, moved = clients.round(strategy, 2, first, [B])
    assert moved == [printed(-0.1748)]
    assert clients.rule.of_client[B]["w"] == printed([2.674])
    assert (strategy.state.control["w"], second["w"]) == (printed([-0.463]), printed([1.5452]))


# ---------------------------------------------------------------- against the oracle


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("server_lr", [1.0, 0.5])
def test_five_pure_steps_agree_with_the_oracle(dtype: str, server_lr: float) -> None:
    sent = start = fed.make_model(dtype)
    expected, oracle, state = fed.widened(start), ref.Scaffold(7, server_lr), ScaffoldState()
    for number in range(1, 6):
        deltas = parameters(number, start)
        sent, state = scaffold.aggregate(
            sent, fed.noisy()(sent, number), deltas, state, num_clients=7, server_lr=server_lr
        )
        expected = oracle.round(expected, fed.noisy()(expected, number), deltas)
        fed.assert_close(sent, expected, start)
        assert state.control is not None
        fed.assert_close(state.control, oracle.c, oracle.c, 1e-12)  # float64, whatever the model is in
        assert list(state.control) == ref.parameters(start)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_five_rounds_agree_with_the_oracle(dtype: str) -> None:
    """Through messages: c goes down in the model's dtype, c_k+ comes up."""
    start = fed.make_model(dtype)
    strategy, oracle = Scaffold(num_clients=5, server_lr=0.5, **OPEN), ref.Scaffold(5, 0.5)
    model, expected = start, fed.widened(start)
    for number in range(1, 6):
        done = fed.play(strategy, number, model, fed.noisy())
        c = control_in(done.messages[0])
        fed.assert_close(c, oracle.c or ref.zeros(start), fed.only_parameters(start))
        clients = fed.noisy()(expected, number)
        halves = [{n: 0.5 * d for n, d in ref.difference(expected, w_k).items()} for w_k in clients]
        expected = oracle.round(expected, clients, halves)
        assert done.returned is not None
        fed.assert_close(done.returned, expected, start)
        length = ref.norm(oracle.c, list(oracle.c))
        assert done.metrics["scaffold/control"] == pytest.approx(length, rel=fed.TOLERANCE[dtype])
        model = done.returned


# ---------------------------------------------------------------- identities


@fed.PROPERTY
@given(fed.cohorts(), st.integers(4, 9))
def test_the_first_round_is_uniform_fedavg(cohort: fed.AnyCohort, num_clients: int) -> None:
    sent, clients, _ = cohort
    deltas = [ref.difference(w_k, sent) for w_k in clients]
    model, _ = scaffold.aggregate(sent, clients, deltas, ScaffoldState(), num_clients=num_clients)
    assert fed.bits(model) == fed.bits(fedavg.aggregate(sent, clients, [1.0 / len(clients)] * len(clients)))


@fed.PROPERTY
@given(st.lists(st.sets(st.integers(0, 4), min_size=1), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_c_is_the_mean_of_all_that_clients_keep(cohorts: list[set[int]], seed: int) -> None:
    """Of all N, those too who have never been asked."""
    rng = np.random.default_rng(seed)
    kept = [np.zeros(3) for _ in range(5)]
    sent, state = {"w": np.zeros(3)}, ScaffoldState()
    for cohort in cohorts:
        new = {k: rng.normal(size=3) for k in sorted(cohort)}
        deltas = [{"w": c_k - kept[k]} for k, c_k in new.items()]
        sent, state = scaffold.aggregate(sent, [sent] * len(cohort), deltas, state, num_clients=5)
        for k, c_k in new.items():
            kept[k] = c_k
        assert state.control is not None
        np.testing.assert_allclose(state.control["w"], sum(kept) / 5, rtol=0, atol=1e-12)


def test_equal_clients_that_are_all_there_stay_fedavg_for_ever() -> None:
    """c_k = c, so nothing is corrected."""
    strategy, clients = Scaffold(num_clients=3, **OPEN), Clients(3, [GRADIENTS[A]] * 3)
    model, plain = POINT, 1.0
    for number in range(1, 7):
        model, _ = clients.round(strategy, number, model, [0, 1, 2])
        for eta in RATES:
            plain -= eta * 2.0 * (plain - 3.0)
        assert model["w"] == pytest.approx([plain], rel=1e-12)
        for kept in clients.rule.of_client.values():
            assert kept["w"] == pytest.approx(strategy.state.control["w"], rel=1e-12)


def test_the_server_rate_scales_the_step() -> None:
    sent = fed.make_model(np.float64)
    clients, deltas = fed.noisy()(sent, 1), parameters(1, sent)
    whole, half = (
        scaffold.aggregate(sent, clients, deltas, ScaffoldState(), num_clients=3, server_lr=rate)[0]
        for rate in (1.0, 0.5)
    )
    for name in ref.parameters(sent):
        np.testing.assert_allclose(half[name] - sent[name], 0.5 * (whole[name] - sent[name]), rtol=0, atol=1e-14)


def test_buffers_are_averaged_without_weights_and_not_controlled() -> None:
    start = fed.make_model()
    strategy = Scaffold(num_clients=3, server_lr=0.5, **OPEN)
    done = fed.play(strategy, 1, start, fed.noisy())
    want = ref.average_buffers(start, fed.noisy()(start, 1), UNIFORM)
    assert done.returned is not None and len(want) == 4
    fed.assert_close({n: done.returned[n] for n in want}, want, {n: start[n] for n in want})
    assert list(control_in(done.messages[0])) == ref.parameters(start)
    assert list(strategy.state.control) == ref.parameters(start)


def test_examples_never_matter() -> None:
    start = fed.make_model()
    models, deltas = fed.noisy()(start, 1), parameters(1, start)
    returned = []
    for examples in ((1, 1, 1), (1, 100, 10000)):
        strategy = Scaffold(num_clients=3, **OPEN)
        fed.configure(strategy, 1, start)
        replies = [handed(n, w_k, d) for n, (w_k, d) in enumerate(zip(models, deltas, strict=True))]
        for message, count in zip(replies, examples, strict=True):
            message.content["metrics"][wire.NUM_EXAMPLES] = count
        returned.append(fed.bits(views(strategy.aggregate_train(1, replies)[0])))
    assert returned[0] == returned[1]


# ---------------------------------------------------------------- what travels


def test_a_message_asks_for_the_half_and_carries_c() -> None:
    strategy, start = Scaffold(num_clients=3, **OPEN), fed.make_model()
    first = fed.play(strategy, 1, start, fed.noisy())
    zero = {name: np.zeros_like(start[name]) for name in ref.parameters(start)}
    assert fed.bits(control_in(first.messages[0])) == fed.bits(zero)
    second = fed.configure(strategy, 2, start)
    for message in second:
        assert message.content["config"][wire.HALVES] == ["scaffold"]
        assert set(message.content) == {"arrays", "config", CONTROL}
        fed.assert_close(control_in(message), strategy.state.control, fed.only_parameters(start))
    assert np.abs(control_in(second[0])["fc.weight"]).max() > 0.0


def test_the_order_of_replies_and_of_arrays_never_changes_bits() -> None:
    start = fed.make_model()
    models, deltas = fed.noisy()(start, 1), parameters(1, start)
    got = []
    for order in ((0, 1, 2), (2, 0, 1)):
        strategy = Scaffold(num_clients=5, **OPEN)
        fed.configure(strategy, 1, start)
        turned = [dict(reversed(d.items())) if order[0] else d for d in deltas]
        record, _ = strategy.aggregate_train(1, [handed(k, models[k], turned[k]) for k in order])
        got.append((fed.bits(views(record)), fed.bits(strategy.state_dict())))
    assert got[0] == got[1]


def test_the_state_is_packed_and_restored() -> None:
    strategy, fresh = (Scaffold(num_clients=5, **OPEN) for _ in range(2))
    model = fed.rounds(strategy, fed.make_model(), fed.noisy(), [1, 2])[-1].returned
    kept = strategy.state_dict()
    arrays = {name: value for name, value in kept.items() if not name.startswith("learnt/")}
    names = ref.parameters(fed.make_model())
    of_clients = {f"clients/{node}/{name}" for node in NODES for name in names}
    assert set(arrays) == {f"control/{name}" for name in names} | of_clients
    assert {arrays[name].dtype for name in of_clients} == {np.dtype(np.float32)}
    assert {array.dtype for name, array in arrays.items() if name not in of_clients} == {np.dtype(np.float64)}
    fresh.load_state_dict(kept)
    assert model is not None
    got, want = (fed.play(one, 3, model, fed.noisy()) for one in (fresh, strategy))
    assert got.returned is not None and want.returned is not None
    assert fed.bits(got.returned) == fed.bits(want.returned)
    assert fed.bits(control_in(got.messages[0])) == fed.bits(control_in(want.messages[0]))
    assert fed.bits(fresh.state_dict()) == fed.bits(strategy.state_dict())


def test_torch_tensors_give_the_same_numbers() -> None:
    sent = fed.make_model(np.float64)
    torch_sent, state, torch_state = fed.to_torch(sent), ScaffoldState(), ScaffoldState()
    for number in (1, 2):
        clients, deltas = fed.noisy()(sent, number), parameters(number, sent)
        sent, state = scaffold.aggregate(sent, clients, deltas, state, num_clients=5, server_lr=0.5)
        torch_sent, torch_state = scaffold.aggregate(
            torch_sent,
            [fed.to_torch(w_k) for w_k in clients],
            [fed.to_torch(delta) for delta in deltas],
            torch_state,
            num_clients=5,
            server_lr=0.5,
        )
        fed.assert_same_numbers(torch_sent, sent)
        fed.assert_same_numbers(torch_state.control or {}, state.control or {})


# ---------------------------------------------------------------- hostile delta_k

START = fed.make_model()
DELTAS = parameters(1, START, 4)
GOOD = DELTAS[3]


def without(name: str) -> Model:
    return {n: array for n, array in GOOD.items() if n != name}


def with_value(value: float) -> Model:
    array = GOOD["fc.bias"].copy()
    array[0] = value
    return GOOD | {"fc.bias": array}


HOSTILE: dict[str, tuple[Any, str]] = {
    "missing": (None, "the requested record 'scaffold.client_control' is missing; the reply has ['arrays']"),
    "empty": (ArrayRecord(), "missing arrays: ['conv1.weight'"),
    "NaN": (
        with_value(np.nan),
        "scaffold.client_control: 'fc.bias' contains NaN, infinity or values too large to square",
    ),
    "infinity": (
        with_value(-np.inf),
        "scaffold.client_control: 'fc.bias' contains NaN, infinity or values too large to square",
    ),
    "another shape": (GOOD | {"fc.bias": np.zeros(6, np.float32)}, "'fc.bias' is float32(6,)"),
    "a shape that would broadcast": (GOOD | {"fc.bias": np.zeros(1, np.float32)}, "'fc.bias' is float32(1,)"),
    "another dtype": (GOOD | {"fc.bias": np.zeros(5)}, "'fc.bias' is float64(5,)"),
    "a missing array": (without("fc.bias"), "missing arrays: ['fc.bias'], unexpected arrays: []"),
    "an extra array": (GOOD | {"extra": np.zeros(1)}, "missing arrays: [], unexpected arrays: ['extra']"),
    "buffers too": (START, "unexpected arrays: ['bn1.running_mean'"),
    "absurdly long": (with_value(1e7), "a record 'scaffold.client_control' of norm 1e+07, more than 5 times"),
    "float32's limit": (
        with_value(3.4e38),
        "a record 'scaffold.client_control' of norm 3.4e+38, more than 5 times",
    ),
    "garbage": (
        ArrayRecord({**to_record(GOOD), "fc.bias": Array("float32", (5,), "numpy.ndarray", b"\x93NUMPY garbage")}),
        "arrays that cannot be read",
    ),
}


@pytest.mark.parametrize(
    "make", [Scaffold, lambda **o: FedLWS(Scaffold(**o)), lambda **o: NormAnalysis(Scaffold(**o))]
)
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_delta_is_rejected_with_its_reason_and_leaves_no_trace(make: Any, kind: str) -> None:
    delta, reason = HOSTILE[kind]
    models = fed.noisy(m=4)(START, 1)
    good = [handed(k + 1, models[k], DELTAS[k]) for k in range(3)]
    got = []
    for arrived in (good, [handed(9, models[3], delta), *good]):
        strategy = make(num_clients=5, **OPEN)
        fed.configure(strategy, 1, START)
        record, metrics = strategy.aggregate_train(1, arrived)
        state = {key: np.asarray(value) for key, value in strategy.state_dict().items()}
        got.append((fed.bits(views(record)), fed.bits(state)))
    assert got[0] == got[1]
    assert [item.node_id for item in strategy.last_cohort.rejected] == [9]
    assert reason in strategy.last_cohort.rejected[0].reason
    assert dict(metrics)["screening/rejected"] == 1


def test_a_record_that_nobody_asked_for_is_rejected() -> None:
    strategy = FedAvg(**OPEN)
    fed.configure(strategy, 1, START)
    assert strategy.aggregate_train(1, [handed(9, START, GOOD)])[0] is None


def test_a_client_that_hands_back_deltas_but_does_not_say_so_is_noticed() -> None:
    strategy = Scaffold(num_clients=3, **OPEN)
    fed.configure(strategy, 1, START)
    replies = [handed(node, START, GOOD) for node in NODES]
    del replies[1].content["metrics"][wire.done("scaffold")]
    _, metrics = strategy.aggregate_train(1, replies)
    assert dict(metrics or {})["screening/not_done"] == 1


# ---------------------------------------------------------------- with others


@pytest.mark.parametrize(
    "make", [Scaffold, lambda **o: FedLWS(Scaffold(**o)), lambda **o: TwoDLRD(FedLWS(Scaffold(**o)))]
)
@pytest.mark.parametrize("where", ["server", "client", "local"])
def test_privacy_around_it_is_refused_at_once(make: Any, where: str) -> None:
    """delta_k would leave the clients unprotected."""
    with pytest.raises(ConfigError) as caught:
        DifferentialPrivacy(make(num_clients=3, **OPEN), where=where)
    assert str(caught.value).startswith("strategy = ")
    assert str(caught.value).endswith(
        "is not allowed: strategy must be one whose clients send only their model: privacy would not protect "
        "scaffold.client_control; choose another strategy, or privacy=none"
    )


def test_a_wrapper_asks_for_both_halves() -> None:
    strategy = TwoDLRD(Scaffold(num_clients=3, **OPEN), local_steps=2)
    done = fed.play(strategy, 1, START, fed.noisy())
    assert done.config[wire.HALVES] == ["scaffold", "two_d_lrd"]
    assert strategy.expected.halves == ("scaffold", "two_d_lrd")
    assert list(strategy.expected.returns) == [KEPT]
    assert done.returned is not None
    assert done.metrics["screening/not_done"] == 0
    plain = fed.play(Scaffold(num_clients=3, **OPEN), 1, START, fed.noisy()).returned
    assert fed.bits(done.returned) == fed.bits(plain or {})
