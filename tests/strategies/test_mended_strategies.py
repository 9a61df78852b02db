"""Faults that a close reading of the strategies found; each is mended and stays so."""

from __future__ import annotations

import math
from typing import Any

import federation as fed
import flwr.serverapp.strategy as flwr
import numpy as np
import pytest
from federation import OPEN
from flwr.app import MetricRecord

from fedstride.arrays import views
from fedstride.errors import ConfigError
from strategies import Fedalr, FedAvg, FedLWS, FedNNNN, NormAnalysis, TwoDLRD
from strategies.screening import screen

START = fed.only_parameters(fed.make_model())


def aggregate(strategy: Any, replies: Any) -> Any:
    fed.configure(strategy, 1, START)
    return strategy.aggregate_train(1, replies)


@pytest.mark.parametrize(
    "make",
    [FedAvg, FedNNNN, Fedalr, lambda **o: FedLWS(flwr.FedAdam(**o)), lambda **o: TwoDLRD(FedLWS(FedNNNN(**o)))],
)
def test_arrays_without_dimensions(make: Any) -> None:
    start = fed.make_model() | {"bn1.num_batches_tracked": np.array(7), "temperature": np.array(2.0, np.float32)}
    strategy = make(**OPEN)
    for done in fed.rounds(strategy, start, fed.noisy()):
        assert done.returned is not None
        assert [(n, a.dtype, a.shape) for n, a in done.returned.items()] == [
            (n, a.dtype, a.shape) for n, a in start.items()
        ]
    assert all(type(value) in (np.ndarray, int, float, str) for value in strategy.state_dict().values())
    fresh = make(**OPEN)
    fresh.load_state_dict(strategy.state_dict())
    got, want = (fed.play(one, 5, done.returned, fed.noisy()) for one in (fresh, strategy))
    assert fed.bits(got.returned) == fed.bits(want.returned)


@pytest.mark.parametrize("names", [("weights", "metrics"), ("arrays", "facts")])
@pytest.mark.parametrize("inner", [flwr.FedAvg, flwr.FedMedian, flwr.Krum])
def test_records_of_other_names_reach_flowers_own_under_one_name(inner: Any, names: Any) -> None:
    replies = [fed.reply(n, w_k) for n, w_k in enumerate(fed.noisy()(START, 1), 1)]
    odd = [
        *replies[:2],
        fed.answer(3, {names[0]: replies[2].content["arrays"], names[1]: replies[2].content["metrics"]}),
    ]
    got, want = (aggregate(FedLWS(inner(**OPEN)), some)[0] for some in (odd, replies))
    assert fed.bits(views(got)) == fed.bits(views(want))


def test_metrics_that_are_not_finite_never_raise() -> None:
    values = (math.inf, -math.inf, math.nan)
    cohort = screen([fed.reply(n, START, 10, {"loss": x}) for n, x in enumerate(values, 1)], START)
    assert math.isnan(cohort.metrics()["loss"])
    cohort = screen([fed.reply(n, START, 10, {"loss": x}) for n, x in enumerate((10**400, 1), 1)], START)
    cohort.metrics()
    assert len(screen([fed.reply(1, START, 10**5000)], START)) == 0


def test_norm_analysis_refuses_an_unknown_weighting() -> None:
    with pytest.raises(ConfigError, match="weighting = 'size' is not allowed"):
        NormAnalysis(weighting="size")


def test_two_d_lrd_anywhere_inside_is_refused() -> None:
    for inner in (TwoDLRD(), NormAnalysis(TwoDLRD()), NormAnalysis(NormAnalysis(TwoDLRD()))):
        with pytest.raises(ConfigError, match=r"TwoDLRD\(FedLWS\(\.\.\.\)\)"):
            FedLWS(inner)


@pytest.mark.parametrize("inner", [flwr.FedAvg, flwr.FedAvgM])
@pytest.mark.parametrize("sent", [True, False])
def test_booleans_follow_the_majority_around_flowers_own(inner: Any, sent: bool) -> None:
    start = {"a": np.zeros(2), "mask": np.array([sent] * 3)}
    votes = ([True, True, False], [False, True, False])
    strategy = FedLWS(inner(**OPEN))
    fed.configure(strategy, 1, start)
    models = [start | {"mask": np.array(vote)} for vote in votes]
    for examples, want in (((10, 90), [False, True, False]), ((50, 50), [sent, True, False])):
        record, _ = strategy.aggregate_train(
            1, [fed.reply(n, m, e) for n, (m, e) in enumerate(zip(models, examples, strict=True), 1)]
        )
        assert views(record)["mask"].tolist() == want


@pytest.mark.parametrize(
    "make", [FedAvg, FedNNNN, lambda **o: FedLWS(flwr.FedAvg(**o)), lambda **o: TwoDLRD(FedLWS(FedAvg(**o)))]
)
@pytest.mark.parametrize(
    "odd",
    [
        {"num-examples": 10, "loss": 1.0, "extra": 2.0},
        {"num-examples": 0, "loss": 1.0},
        {"num-examples": math.nan, "loss": 1.0},
        {"num-examples": [1], "loss": 1.0},
        {"loss": 1.0},
    ],
)
def test_odd_evaluations_never_end_the_run(make: Any, odd: Any) -> None:
    good = {"num-examples": 10, "loss": 1.0}
    told = [fed.answer(n, {"metrics": MetricRecord(m)}) for n, m in enumerate((good, odd), 1)]
    assert dict(make(**OPEN).aggregate_evaluate(1, told) or {})["loss"] == pytest.approx(1.0)
    assert not make(**OPEN).aggregate_evaluate(1, [fed.answer(1, {}), fed.failure(2)])


@pytest.mark.parametrize("inner", [FedAvg, flwr.FedAvg, flwr.Krum])
def test_least_and_largest_client_metrics_stay_so_around_any_strategy(inner: Any) -> None:
    told = [{"fednlr/rate_min/fc": 0.1 * n, "fednlr/rate_max/fc": 1.0 * n} for n in (1, 2, 3)]
    replies = [fed.reply(n, w_k, 10, told[n - 1]) for n, w_k in enumerate(fed.noisy()(START, 1), 1)]
    _, metrics = aggregate(FedLWS(inner(**OPEN)), replies)
    assert (metrics["fednlr/rate_min/fc"], metrics["fednlr/rate_max/fc"]) == (0.1, 3.0)


@pytest.mark.parametrize(
    "make", [FedAvg, lambda **o: FedLWS(FedAvg(**o)), lambda **o: NormAnalysis(TwoDLRD(FedLWS(FedNNNN(**o))))]
)
def test_a_reply_set_aside_is_logged_once(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    aggregate(
        make(**OPEN), [fed.failure(9), *(fed.reply(n, w_k) for n, w_k in enumerate(fed.noisy()(START, 1), 1))]
    )
    assert caplog.text.count("node 9 is set aside") == 1


def test_absurd_values_raise_nowhere_even_where_numpy_is_told_to() -> None:
    sent = {"a": np.zeros(2)}
    with np.errstate(all="raise"):
        assert (
            len(
                screen(
                    [fed.reply(1, {"a": np.array([1e200, 1.0])}), fed.reply(2, {"a": np.array([np.inf, 1.0])})],
                    sent,
                )
            )
            == 0
        )


def test_a_client_cannot_name_the_servers_own_figures() -> None:
    replies = [fed.reply(n, w_k, 10, {"screen/set_aside": 99.0}) for n, w_k in enumerate(fed.noisy()(START, 1), 1)]
    assert aggregate(FedLWS(flwr.FedAvg(**OPEN)), replies)[1]["screen/set_aside"] == 0
