"""Figures from bins of the clients' scores: which bins count, and what every strategy makes of them."""

from __future__ import annotations

import math
from typing import Any

import federation as fed
import numpy as np
import pytest
from flwr.app import Message, MetricRecord
from flwr.serverapp.strategy import FedAdam, FedAvgM
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg

from fedstride.figures.metrics import fact
from fedstride.figures.score_bins import bins_of, packed
from fedstride.messages.limits import MAX_LIST
from strategies import FedAvg, FedNNNN, NormAnalysis
from strategies.replies.figures import combine, numbers, select
from strategies.replies.screening_settings import Screening

NAME = "local/auroc"
ERROR = "local/auroc/error"
SENT = {"w": np.zeros(3)}


def scores_of(seed: int, count: int, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    positive = rng.random(count) < 0.4
    positive[:2] = [True, False]
    return 0.01 * (rng.standard_normal(count) + positive) + shift, positive


def bins(seed: int, count: int = 40, columns: int = 1, shift: float = 0.0) -> list[float]:
    return packed(bins_of(*scores_of(seed + k, count, shift), 256) for k in range(columns))


GOOD = [bins(seed, count) for seed, count in ((1, 30), (2, 50), (3, 2), (4, 400))]

HOSTILE: dict[str, tuple[Any, str]] = {
    "NaN": ([1.0, 0.0, math.nan, 3.0, 4.0], "a number is not finite"),
    "infinite": ([1.0, -math.inf, 0.0, 3.0, 4.0], "a number is not finite"),
    "an int that no float holds": ([1, 0, 10**400, 3, 4], "a number is not finite"),
    "edges that fall": ([2.0, 0.0, 5.0, 4.0, 1.0, 1.0, 1.0, 1.0], "edges of bins that do not ascend"),
    "a negative count": (
        [1.0, 0.0, 1.0, -1.0, 4.0],
        "a bin has a number of examples that is not a whole number from 0 to 1e+12",
    ),
    "a huge count": (
        [1.0, 0.0, 1.0, 1e300, 4.0],
        "a bin has a number of examples that is not a whole number from 0 to 1e+12",
    ),
    "cut off": (GOOD[0][:-1], f"{len(GOOD[0]) - 2} numbers after a number of 30 bins, expected 91"),
    "too many bins": ([257.0, *map(float, range(258)), *[1.0] * 514], "257 bins, expected 1 to 256"),
    "a long list": ([1.0] * (MAX_LIST + 1), f"a list of {MAX_LIST + 1} numbers, the most is {MAX_LIST}"),
    "empty": ([], "no bins"),
    "rates of before": ([1 / 256, *[0.5] * 512], "0.00390625 bins, expected 1 to 256"),
    "other classes": (
        bins(9, columns=3),
        "bins of 3 classes or labels, most clients report bins of 1 classes or labels",
    ),
    "a number": (0.99, "a number, most clients report bins of 1 classes or labels"),
    "a number that is no AUROC": (1.5, "1.5 is not in [0, 1]"),
    "text": ("0.9", "str, not a number or a list of numbers"),
    "a list of text": (["0.9"], "list, not a number or a list of numbers"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("place", [0, 2, 4])
def test_bins_that_cannot_be_are_left_out_with_one_line(kind: str, place: int) -> None:
    value, reason = HOSTILE[kind]
    selection = select(NAME, [*GOOD[:place], value, *GOOD[place:]])
    assert selection.left_out == {place: reason}
    assert list(selection.used.values()) == GOOD
    weights = [30.0, 50.0, 2.0, 400.0]
    shared = [*weights[:place], 1e12, *weights[place:]]
    assert combine(NAME, selection.used, shared) == combine(NAME, dict(enumerate(GOOD)), weights)


def test_clients_that_report_a_number_have_a_mean() -> None:
    """Such as clients of others, which compute the figure themselves."""
    selection = select(NAME, [0.5, 0.9, GOOD[0]])
    assert selection.left_out == {2: "bins of 1 classes or labels, most clients report a number"}
    assert combine(NAME, selection.used, [1.0, 3.0, 9.0]) == pytest.approx(0.8)
    assert numbers(NAME, selection.used) == {0: 0.5, 1: 0.9}


def evaluation(*reported: Any, counts: list[Any]) -> list[Message]:
    return [
        fed.answer(n, {"metrics": MetricRecord({"num-examples": count, "client-id": n, NAME: value})})
        for n, (value, count) in enumerate(zip(reported, counts, strict=True), 1)
    ]


STRATEGIES: dict[str, Any] = {
    "ours": lambda **given: FedAvg(**given),
    "ours with a model of its own": lambda **given: FedNNNN(**given),
    "ours around ours": lambda **given: NormAnalysis(FedAvg(**given)),
    "ours around FedAvg": lambda **given: NormAnalysis(FlowerFedAvg(**given)),
    "ours around FedAdam": lambda **given: NormAnalysis(FedAdam(**given)),
    "ours around FedAvgM": lambda **given: NormAnalysis(FedAvgM(**given)),
}


@pytest.mark.parametrize("kind", STRATEGIES)
@pytest.mark.parametrize("counts", [[30, 50, 2, 400], [1, 1, 1, 1], [7, 1000, 0.5, 10**12]])
def test_every_strategy_has_the_figure_of_all_examples_by_weight(kind: str, counts: list[Any]) -> None:
    strategy = STRATEGIES[kind](**fed.OPEN)
    metrics = strategy.aggregate_evaluate(1, evaluation(*GOOD, counts=counts))
    pool = fact(NAME).pool
    assert pool is not None
    assert (metrics[NAME], metrics[ERROR]) == pool(GOOD, counts)
    reverse = STRATEGIES[kind](**fed.OPEN)
    mixed = list(reversed(evaluation(*GOOD, counts=counts)))
    assert dict(reverse.aggregate_evaluate(1, mixed)) == dict(metrics)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_another_metric_may_be_the_weight(kind: str) -> None:
    replies = evaluation(*GOOD, counts=[1, 1, 1, 1])
    for reply, patients in zip(replies, [5, 1, 9, 2], strict=True):
        reply.content["metrics"]["patients"] = patients
    strategy = STRATEGIES[kind](weighted_by_key="patients", **fed.OPEN)
    pool = fact(NAME).pool
    assert pool is not None
    assert strategy.aggregate_evaluate(1, replies)[NAME] == pool(GOOD, [5.0, 1.0, 9.0, 2.0]).value


def test_a_bound_on_shares_bounds_the_weight_of_bins() -> None:
    strategy = FedAvg(screening=Screening(max_share=0.5), **fed.OPEN)
    metrics = strategy.aggregate_evaluate(1, evaluation(*GOOD[:3], counts=[10, 10, 10**12]))
    pool = fact(NAME).pool
    assert pool is not None
    assert metrics is not None
    assert metrics[NAME] == pytest.approx(pool(GOOD[:3], [10.0, 10.0, 20.0]).value)


@pytest.mark.parametrize("around", [False, True])
def test_a_function_of_the_user_gets_the_figure_of_each_client_and_decides(around: bool) -> None:
    def worst(contents: list[Any], key: str) -> MetricRecord:
        found = [float(content["metrics"][NAME]) for content in contents]
        return MetricRecord({NAME: min(found), "number": len(found)})

    given: dict[str, Any] = {"evaluate_metrics_aggr_fn": worst, **fed.OPEN}
    strategy = NormAnalysis(FlowerFedAvg(**given)) if around else FedAvg(**given)
    metrics = strategy.aggregate_evaluate(1, evaluation(*GOOD, counts=[30, 50, 2, 400]))
    alone = [combine(NAME, {0: value}, [1.0]) for value in GOOD]
    assert dict(metrics or {}) == {NAME: min(alone), "number": 4}


def test_too_few_valid_bins_are_no_figure() -> None:
    for strategy in (FedAvg(**fed.OPEN), NormAnalysis(FlowerFedAvg(**fed.OPEN))):
        metrics = strategy.aggregate_evaluate(1, evaluation(GOOD[0], [], counts=[1, 1]))
        assert not {NAME, ERROR} & set(metrics or {})


@pytest.mark.parametrize("others", [[], [GOOD[1]]])
def test_a_client_of_one_class_has_no_figure_but_counts(others: list[list[float]]) -> None:
    ill = packed([bins_of(np.array([0.01, 0.02]), np.ones(2, bool), 256)])
    well = packed([bins_of(np.array([-0.01, -0.02, -0.3]), np.zeros(3, bool), 256)])
    reported, counts = [ill, well, *others], [2, 3, *[50] * len(others)]
    pool = fact(NAME).pool
    assert pool is not None
    for strategy in (FedAvg(**fed.OPEN), NormAnalysis(FlowerFedAvg(**fed.OPEN))):
        metrics = strategy.aggregate_evaluate(1, evaluation(*reported, counts=counts))
        assert metrics is not None
        assert metrics[NAME] == pool(reported, counts).value
        assert others or metrics[NAME] == 1.0
        only = strategy.aggregate_evaluate(2, evaluation(ill, ill, counts=[2, 2]))
        assert only is not None
        assert math.isnan(only[NAME])  # type: ignore[arg-type]


def test_bins_beside_a_model_are_not_recorded_but_combined() -> None:
    replies = [
        fed.reply(n, {"w": np.ones(3)}, count, {"client-id": n, NAME: value})
        for n, (value, count) in enumerate(zip(GOOD, [30, 50, 2, 400], strict=True), 1)
    ]
    for strategy in (FedAvg(**fed.OPEN), NormAnalysis(FlowerFedAvg(**fed.OPEN))):
        fed.configure(strategy, 1, SENT, nodes=[1, 2, 3, 4])
        _, metrics = strategy.aggregate_train(1, replies)
        pool = fact(NAME).pool
        assert pool is not None
        assert metrics is not None
        assert metrics[NAME] == pool(GOOD, [30.0, 50.0, 2.0, 400.0]).value
        assert strategy.last_cohort is not None
        assert strategy.last_cohort.usual_forms[NAME] == -1
