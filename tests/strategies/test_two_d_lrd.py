"""2D-LRD at the server: Pflug's detector, the rate factors, the wrapper."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, get_args

import federation as fed
import numpy as np
import pytest
import reference as ref
from federation import OPEN, Expected
from flwr.app import ConfigRecord, Message
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from hypothesis import given
from hypothesis import strategies as st
from reference import Model

from fedstride.arrays.float64_sums import difference, inner
from strategies import FedAvg, FedDyn, FedLWS, FedNNNN, TwoDLRD
from strategies.two_d_lrd import Decay, Detector, detect, rate_factors

WORKED_STEPS = [1, 0.5, -0.4, 0.3, -0.3, 0.2, -0.2, 0.2, -0.2, 0.1, -0.1, 0.1, -0.1]
WORKED_D = [0] * 6 + [1] * 3 + [2] * 3 + [3]
WORKED_S = [0, 0.5, 0.3, 0.18, 0.09, 0.03, -0.01, -0.04, -0.08, -0.10]  # before the test


def line(steps: Sequence[float]) -> fed.Training:
    """Clients that all take these steps, one a round, along a line."""
    return lambda sent, server_round: [{n: a + steps[server_round - 1] for n, a in sent.items()}] * 3


FACTORS = "two_d_lrd.rate_factors"
POINT: Model = {"x": np.zeros(1)}


# ---------------------------------------------------------------- the detector


def test_worked_detector() -> None:
    detector, theta, got = Detector(), np.zeros(1), []
    for step in WORKED_STEPS:
        before, theta = theta, theta + step
        done = detect(detector, {"x": before}, {"x": theta}, window=2)
        detector = done.detector
        got.append(done)
    assert [done.S for done in got[:10]] == pytest.approx(WORKED_S, abs=1e-12)
    assert [done.detector.d for done in got] == WORKED_D
    assert [done.detector.r for done in got] == list(range(1, 14))
    assert [done.detector.r_0 for done in got] == [0] * 6 + [7] * 3 + [10] * 3 + [13]
    assert [done.detector.S for done in got if done.detector.r_0 == done.detector.r] == [0.0] * 3  # exactly


def test_a_second_worked_detector() -> None:
    """With All-Decreasing's rates, whose detector is the same."""
    detector, theta, got = Detector(), np.zeros(1), []
    for step in (1.0, 0.5, -0.6, 0.2, -0.3, -0.4, 0.9, -1.0, 0.5, 0.1, 0.3):
        before, theta = theta, theta + step
        got.append(detect(detector, {"x": before}, {"x": theta}, window=2))
        detector = got[-1].detector
    want = [0.0, 0.5, 0.2, 0.08, 0.02, 0.14, -0.22, -0.9, -1.4, -1.35, 0.03]
    assert [done.S for done in got] == pytest.approx(want, abs=1e-12)
    assert [done.detector.d for done in got] == [0] * 6 + [1] * 3 + [2] * 2
    rates = [0.01 * rate_factors(d, attenuation=0.2, local_steps=3, decay="all")[0] for d in range(4)]
    assert rates == pytest.approx([0.01, 0.008, 0.0064, 0.00512], abs=1e-12)
    later = [rate_factors(d, attenuation=0.2, local_steps=3, decay="additive")[1:2] for d in range(6)]
    assert later == [
        [1.0],
        [pytest.approx(0.8)],
        [pytest.approx(0.6)],
        [pytest.approx(0.4)],
        [pytest.approx(0.2)],
        [],
    ]


def test_worked_detector_through_the_strategy() -> None:
    strategy = TwoDLRD(FedAvg(**OPEN), window=2)
    done = fed.rounds(strategy, POINT, line(WORKED_STEPS), range(1, 14))
    assert [one.metrics["two_d_lrd/S"] for one in done[:10]] == pytest.approx(WORKED_S, abs=1e-12)
    assert [one.metrics["two_d_lrd/d"] for one in done] == WORKED_D
    assert [one.metrics["two_d_lrd/r_0"] for one in done] == [0] * 6 + [7] * 3 + [10] * 3 + [13]
    assert done[1].metrics["two_d_lrd/inner"] == pytest.approx(0.5)
    assert done[1].metrics["two_d_lrd/cosine"] == pytest.approx(1.0)
    assert done[2].metrics["two_d_lrd/cosine"] == pytest.approx(-1.0)
    assert done[0].metrics["two_d_lrd/cosine"] == 0.0


@fed.PROPERTY
@given(st.integers(0, 2**32 - 1), st.integers(0, 4), st.integers(1, 12))
def test_the_detector_is_the_oracles(seed: int, window: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    oracle, detector = ref.Pflug(window), Detector()
    theta = fed.make_model(np.float64)
    for _ in range(count):
        before, theta = theta, ref.make_clients(rng, theta, 1)[0]
        want = oracle.round(before, theta)
        got = detect(detector, before, theta, window=window)
        detector = got.detector
        assert (got.S, got.inner_product) == pytest.approx((want["S_before"], want["inner"]), rel=1e-10, abs=1e-10)
        assert (detector.d, detector.r, detector.r_0) == (want["d"], oracle.r, oracle.r0)
        assert pytest.approx(want["S"], rel=1e-10, abs=1e-10) == detector.S
        assert -1.0 - 1e-12 <= got.cosine <= 1.0 + 1e-12


@fed.PROPERTY
@given(fed.cohorts(m=1), st.lists(st.floats(0.01, 2.0), min_size=1, max_size=8), st.integers(0, 3))
def test_a_straight_line_never_triggers(cohort: fed.AnyCohort, lengths: list[float], window: int) -> None:
    detector, theta = Detector(), cohort.sent
    for length in lengths:
        before, theta = theta, {n: a + length * (cohort.clients[0][n] - cohort.sent[n]) for n, a in theta.items()}
        detector = detect(detector, before, theta, window=window).detector
    assert (detector.d, detector.S >= 0.0) == (0, True)


@fed.PROPERTY
@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=10))
def test_a_window_longer_than_the_run_never_triggers(steps: list[float]) -> None:
    detector = Detector()
    for step in steps:
        detector = detect(detector, {"x": np.zeros(1)}, {"x": np.array([step])}, window=len(steps)).detector
    assert detector.d == 0


def test_buffers_do_not_enter() -> None:
    before = {"a": np.zeros(1), "n": np.array([0]), "bn.running_mean": np.zeros(1)}
    after = {"a": np.ones(1), "n": np.array([100]), "bn.running_mean": np.full(1, 50.0)}
    first = detect(Detector(), before, after, window=0)
    assert detect(first.detector, before, after, window=0).inner_product == 1.0
    assert list(first.detector.previous or {}) == ["a"]


def test_a_model_that_does_not_move() -> None:
    detector = Detector()
    for _ in range(3):
        done = detect(detector, POINT, POINT, window=0)
        detector = done.detector
        assert (done.S, done.inner_product, done.cosine, detector.d) == (0.0, 0.0, 0.0, 0)


def test_torch_tensors_give_the_same_numbers() -> None:
    theta = fed.make_model(np.float64)
    detector, torch_detector = Detector(), Detector()
    for server_round in (1, 2, 3):
        before, theta = theta, fed.noisy(m=1)(theta, server_round)[0]
        want = detect(detector, before, theta, window=0)
        got = detect(torch_detector, fed.to_torch(before), fed.to_torch(theta), window=0)
        assert got[1:] == pytest.approx(want[1:], rel=1e-12, abs=1e-12)
        assert got.detector[1:4] == want.detector[1:4]
        fed.assert_same_numbers(got.detector.previous or {}, want.detector.previous or {})
        detector, torch_detector = want.detector, got.detector


# ---------------------------------------------------------------- the rates


@pytest.mark.parametrize(("d", "alpha"), [(0, 1.0), (1, 0.8), (2, 0.6), (3, 0.4), (4, 0.2)])
def test_printed_attenuation(d: int, alpha: float) -> None:
    got = rate_factors(d, attenuation=0.2, local_steps=4)
    assert got == pytest.approx([1.0, alpha, alpha**2, alpha**3])
    assert rate_factors(d, attenuation=0.2, local_steps=4, decay="additive") == pytest.approx([1.0] + [alpha] * 3)


@pytest.mark.parametrize("decay", ["2d", "additive"])
@pytest.mark.parametrize(("attenuation", "d"), [(0.2, 5), (0.1, 10), (1 / 49, 49), (1.0, 1)])
def test_one_step_a_round_once_c_d_reaches_one(decay: str, attenuation: float, d: int) -> None:
    assert rate_factors(d, attenuation=attenuation, local_steps=4, decay=decay) == [1.0]
    assert rate_factors(d + 1, attenuation=attenuation, local_steps=4, decay=decay) == [1.0]
    assert len(rate_factors(d - 1, attenuation=attenuation, local_steps=4, decay=decay)) == 4


@fed.PROPERTY
@given(
    st.sampled_from([0.0, 0.05, 0.1, 0.2, 0.25, 0.3, 1.0]),
    st.integers(0, 25),
    st.integers(1, 6),
    st.sampled_from(get_args(Decay)),
)
def test_the_rates_are_the_oracles(attenuation: float, d: int, local_steps: int, decay: str) -> None:
    got = rate_factors(d, attenuation=attenuation, local_steps=local_steps, decay=decay)
    assert got == pytest.approx(ref.rates(1.0, attenuation, d, local_steps, decay), rel=1e-12)


def test_no_attenuation_is_plain_sgd_for_ever() -> None:
    assert rate_factors(1000, attenuation=0.0, local_steps=3) == [1.0] * 3


# ---------------------------------------------------------------- the strategy


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("inner_name", ["fedavg", "flower"])
def test_eight_rounds_agree_with_the_oracle(dtype: str, inner_name: str) -> None:
    rule = ref.Pflug(1)

    def oracle(sent: Model, clients: Sequence[Model]) -> Expected:
        model = fed.fedavg_oracle(sent, clients)
        got = rule.round(sent, model)
        factors = ref.rates(1.0, 0.4, got["d"], 5)
        reported = {
            "two_d_lrd/S": got["S_before"],
            "two_d_lrd/inner": got["inner"],
            "two_d_lrd/d": got["d"],
            "two_d_lrd/r_0": rule.r0,
            "two_d_lrd/tau": len(factors),
            "two_d_lrd/rates": factors,
        }
        return Expected(model, model, reported)

    inside = FedAvg(**OPEN) if inner_name == "fedavg" else FlowerFedAvg(**OPEN)
    start = fed.make_model(dtype)
    if inner_name == "flower":
        del start["fc.mask"]
    strategy = TwoDLRD(inside, attenuation=0.4, window=1, local_steps=5)
    fed.follow(strategy, start, oracle, fed.noisy(seed=8), count=8)
    assert strategy.state.d >= 2, "this seed must trigger, or the test says nothing"


def test_the_round_after_a_trigger_gets_the_new_factors() -> None:
    """A4-4: decided after round 3, used in round 4."""
    strategy = TwoDLRD(FedAvg(**OPEN), attenuation=0.5, window=2, local_steps=3)
    done = fed.rounds(strategy, POINT, line([1.0, 0.5, -2.0, 1.0, -1.0, 1.0, -1.0]), range(1, 8))
    reported = [one.config[FACTORS] for one in done]
    assert [one.metrics["two_d_lrd/d"] for one in done] == [0, 0, 1, 1, 1, 2, 2]
    assert reported == [[1.0] * 3] * 3 + [[1.0, 0.5, 0.25]] * 3 + [[1.0]]
    assert [one.metrics["two_d_lrd/rates"] for one in done[:-1]] == reported[1:]
    assert [one.metrics["two_d_lrd/alpha"] for one in done] == [1.0, 1.0, 0.5, 0.5, 0.5, 1.0, 1.0]
    assert [one.metrics["two_d_lrd/tau"] for one in done] == [3, 3, 3, 3, 3, 1, 1]


@pytest.mark.parametrize("decay", get_args(Decay))
def test_every_message_carries_the_factors_and_the_callers_config_does_not(decay: str) -> None:
    strategy = TwoDLRD(FlowerFedAvg(**OPEN), local_steps=4, decay=decay)
    strategy.state = Detector(d=2)
    config = ConfigRecord({"lr": 0.1})
    messages = fed.configure(strategy, 5, fed.make_model(), config)
    want = rate_factors(2, attenuation=0.2, local_steps=4, decay=decay)
    assert len(messages) == 3
    for message in messages:
        reported = message.content["config"]
        assert dict(reported) == {"lr": 0.1, "server-round": 5, "halves": ["two_d_lrd"], FACTORS: want}
    assert dict(config) == {"lr": 0.1}


def test_a_round_without_replies_does_not_count() -> None:
    strategy = TwoDLRD(FedAvg(**OPEN), window=0)
    fed.play(strategy, 1, POINT, line([1.0]))
    before = strategy.state
    done = fed.play(strategy, 2, POINT, line([1.0, 1.0]), arrange=lambda replies: [])
    assert done.returned is None
    assert strategy.state == before
    assert before.r == 1


def test_the_detector_sees_what_is_sent() -> None:
    """TwoDLRD(FedLWS(FedNNNN)): the normalised, shrunk model, not the average that is returned."""
    strategy = TwoDLRD(FedLWS(FedNNNN(**OPEN), beta=0.5), window=1)
    done = fed.rounds(strategy, fed.make_model(np.float64), fed.noisy(), range(1, 6))
    names = ref.parameters(done[0].sent)
    moves = [difference(b.sent, a.sent, names) for a, b in pairwise(done)]
    for r in range(1, 4):
        want = sum(inner(moves[r][name], moves[r - 1][name]) for name in names)
        assert done[r].metrics["two_d_lrd/inner"] == pytest.approx(want, rel=1e-10)


def test_the_wrapper_changes_no_model() -> None:
    for inside in (FedAvg, FedNNNN):
        plain = fed.rounds(inside(**OPEN), fed.make_model(), fed.noisy())
        wrapped = fed.rounds(TwoDLRD(inside(**OPEN)), fed.make_model(), fed.noisy())
        for one, other in zip(plain, wrapped, strict=True):
            assert one.returned is not None and other.returned is not None
            assert fed.bits(one.sent) == fed.bits(other.sent)
            assert fed.bits(one.returned) == fed.bits(other.returned)


@pytest.mark.parametrize("settings", [{"attenuation": 0.0}, {"window": 99}])
def test_without_attenuation_or_within_the_window_rates_stay(settings: Any) -> None:
    strategy = TwoDLRD(FedAvg(**OPEN), **({"window": 0} | settings))
    done = fed.rounds(strategy, POINT, line([1.0, -1.0] * 4), range(1, 9))
    assert all(one.config[FACTORS] == [1.0] * 10 for one in done)
    assert (done[-1].metrics["two_d_lrd/d"] > 0) is ("attenuation" in settings)


def test_uniform_weights_are_the_inner_strategys() -> None:
    model = fed.play(TwoDLRD(FedAvg(weighting="uniform", **OPEN)), 1, fed.WORKED, fed.worked).returned
    assert model is not None
    want = fed.fedavg_oracle(fed.WORKED, fed.worked(fed.WORKED, 1), fed.UNIFORM)
    fed.assert_close(model, want, fed.WORKED)


# ---------------------------------------------------------------- clients that do not obey


def ignoring(replies: list[Message]) -> list[Message]:
    """As from clients of another app, the second and third of them: they know nothing of the factors."""
    for reply in replies[1:]:
        del reply.content["metrics"]["done/two_d_lrd"]
    return replies


def test_clients_that_ignore_the_factors_are_noticed_and_named_once(caplog: pytest.LogCaptureFixture) -> None:
    done = fed.rounds(TwoDLRD(FedAvg(**OPEN)), fed.make_model(), fed.noisy(), arrange=ignoring)
    assert [one.metrics["screening/not_done"] for one in done] == [2] * 4
    assert [one.metrics["screening/rejected"] for one in done] == [0] * 4
    warnings = [record.getMessage() for record in caplog.records if "two_d_lrd" in record.getMessage()]
    assert len(warnings) == 1
    _, second, third = sorted(fed.NODES)
    assert f"clients {second}, {third} did not execute the client half of two_d_lrd" in warnings[0]
    assert "docs/own-parts.md" in warnings[0]


def test_clients_that_obey_are_not_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    done = fed.rounds(TwoDLRD(FedAvg(**OPEN)), fed.make_model(), fed.noisy())
    assert [one.metrics["screening/not_done"] for one in done] == [0] * 4
    assert "two_d_lrd" not in caplog.text


@pytest.mark.parametrize("answer", [0, 2, 0.5, [1], [1, 1]])
def test_only_a_one_says_that_it_was_done(answer: Any) -> None:
    def arrange(replies: list[Message]) -> list[Message]:
        replies[0].content["metrics"]["done/two_d_lrd"] = answer
        return replies

    done = fed.play(TwoDLRD(FedAvg(**OPEN)), 1, fed.make_model(), fed.noisy(), arrange)
    assert done.metrics["screening/not_done"] == 1


def test_a_client_without_two_halves_counts_once() -> None:
    strategy = TwoDLRD(FedDyn(num_clients=3, **OPEN))

    def neither(replies: list[Message]) -> list[Message]:
        for half in ("two_d_lrd", "feddyn"):
            del replies[0].content["metrics"][f"done/{half}"]
        return replies

    done = fed.play(strategy, 1, fed.make_model(), fed.noisy(), neither)
    assert done.metrics["screening/not_done"] == 1
    first = min(fed.NODES)
    assert strategy.last_cohort is not None
    assert strategy.last_cohort.not_done == {"feddyn": [first], "two_d_lrd": [first]}


# ---------------------------------------------------------------- what it goes around


def test_alone_it_is_algorithm_1_with_equal_weights() -> None:
    """A4-1: around FedAvg with 1/m; a strategy that is given aggregates as it does."""
    start = fed.make_model()
    alone, uniform, examples = (
        fed.play(strategy, 1, start, fed.noisy()).returned
        for strategy in (
            TwoDLRD(),
            FedAvg(weighting="uniform", **OPEN),
            TwoDLRD(FedAvg(**OPEN)),
        )
    )
    assert alone is not None and uniform is not None and examples is not None
    assert fed.bits(alone) == fed.bits(uniform) != fed.bits(examples)
    assert TwoDLRD().weighting == "uniform"
    assert TwoDLRD(FedAvg()).weighting == "examples"
