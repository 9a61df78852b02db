"""Figures that clients report: which values count, and how they are combined."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import federation as fed
import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, MetricRecord
from flwr.serverapp.exception import AggregationError
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from flwr.serverapp.strategy import QFedAvg
from hypothesis import given
from hypothesis import strategies as st

from fedstride.errors import RunError
from fedstride.figures.metrics import fact
from fedstride.messages.limits import MAX_LIST
from strategies import FedAvg, FedLWS, NormAnalysis
from strategies.replies.cohort import Cohort
from strategies.replies.figures import agreed, combine, form_of, numbers, select
from strategies.replies.reply_messages import messages_of
from strategies.replies.screening import screen, screen_metrics
from strategies.replies.screening_settings import Screening
from strategies.shell.reported_metrics import CHECK
from strategies.shell.stack import RoundResult

SENT = {"w": np.zeros(3)}
NAMES = ("train/loss", "train/accuracy", "train/steps", "fednlr/rate_min/fc", "mine/regret")


def cohort_of(*reported: dict[str, Any], examples: list[Any] | None = None) -> Cohort:
    counts = examples or [10 * n for n in range(1, len(reported) + 1)]
    replies = [
        fed.reply(n, {"w": np.ones(3)}, count, {"client-id": n, **metrics})
        for n, (metrics, count) in enumerate(zip(reported, counts, strict=True), 1)
    ]
    cohort = screen(replies, SENT)
    assert len(cohort) == len(reported)
    return cohort


def figure(name: str, values: list[Any], weights: list[float] | None = None) -> Any:
    """The combined figure; None if there is none."""
    selection = select(name, values)
    if 2 * len(selection.used) <= len(values):
        return None
    return combine(name, selection.used, weights or [1.0] * len(values))


# ---------------------------------------------------------------- which values count


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("train/loss", math.nan, "nan is not finite"),
        ("train/loss", -math.inf, "-inf is not finite"),
        ("train/loss", 10**400, "inf is not finite"),
        ("train/loss", -1e308, "-1e+308 is not in [0, inf]"),
        ("train/loss", -1e-9, "-1e-09 is not in [0, inf]"),
        ("train/loss", 1e308, "1e+308 is not within 400 of the median 2"),
        ("train/loss", [2.0], "a list of 1, most clients report a number"),
        ("train/loss", "2.0", "str, not a number or a list of numbers"),
        ("train/loss", True, "bool, not a number or a list of numbers"),
        ("train/loss", [2.0, "x"], "list, not a number or a list of numbers"),
        ("train/loss", [0.0] * (MAX_LIST + 1), f"a list of {MAX_LIST + 1} numbers, the most is {MAX_LIST}"),
        ("train/accuracy", 1.0 + 1e-9, "1.000000001 is not in [0, 1]"),
        ("train/steps", -1, "-1 is not in [0, inf]"),
        ("train/steps", 10**12, "1e+12 is not within 1e+06 of the median 2"),
        ("mine/regret", -1e308, "-1e+308 is not within 400 of the median 2"),
        ("fednlr/rate_min/fc", -0.1, "-0.1 is not in [0, inf]"),
        ("fednlr/rate_max/fc", 1e9, "1e+09 is not within 400 of the median 2"),
    ],
)
def test_one_bad_value_of_five_is_left_out_with_its_reason(name: str, value: Any, reason: str) -> None:
    good = [0.25, 0.5, 0.75, 1.0] if fact(name).most == 1.0 else [1.0, 2.0, 2.0, 3.0]
    for place in range(5):
        values = [*good[:place], value, *good[place:]]
        selection = select(name, values)
        assert selection.left_out == {place: reason}
        assert list(selection.used.values()) == good
        weights = [1.0, 2.0, 3.0, 4.0]
        shared = [*weights[:place], 1e12, *weights[place:]]
        assert figure(name, values, shared) == figure(name, good, weights)


def test_of_two_clients_that_differ_too_much_neither_counts() -> None:
    assert figure("train/loss", [1.0, 1e308]) is None
    assert figure("mine/regret", [-1e308, 1.0]) is None
    assert figure("mine/regret", [math.nan, 1.0]) is None
    assert figure("mine/regret", [90.0, 1.0]) == 45.5
    assert figure("mine/regret", [1e6, 9e7]) == 4.55e7


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([1.0, None], None),
        ([1.0, None, 3.0], 2.0),
        ([1.0, 3.0, None, None], None),
        ([1.0, [1.0]], None),
        ([1.0, [1.0], [1.0]], [1.0]),
        ([[1.0], [1.0, 2.0], [3.0], [5.0]], [3.0]),
        ([math.nan, math.inf, 3.0], None),
        ([None, None], None),
        ([[], [], []], []),
    ],
)
def test_more_than_half_of_the_clients_must_report_it(values: list[Any], want: Any) -> None:
    assert figure("mine/regret", values) == want


def test_a_list_counts_as_a_whole() -> None:
    selection = select("mine/curve", [[1.0, 2.0], [3.0, math.nan], [1.0, 1e300], [3.0, 4.0], [5.0, 6.0]])
    assert list(selection.used) == [0, 3, 4]
    assert figure("mine/curve", [[1.0, 2.0], [3.0, math.nan], [5.0, 6.0]]) == [3.0, 4.0]


SKEWED = {
    "losses of clients with one class, and of one with all": ("train/loss", [1e-7] * 9 + [2.3]),
    "a diverging client": ("train/loss", [0.01, 0.02, 0.01, 0.03, 45.0]),
    "large losses": ("train/loss", [1e6, 2e6, 9e7, 1e5]),
    "one client with a thousand times the steps": ("train/steps", [1, 1, 1, 1, 1, 5000]),
    "only one client has any": ("mine/regret", [0.0, 0.0, 0.0, 0.0, 1.0]),
    "two groups": ("mine/bytes", [1e3, 1e3, 1e3, 1e9, 1e9, 1e9]),
    "both signs": ("mine/drift", [-3e5, 4e5, 1.0, -2e5]),
    "all or nothing": ("train/accuracy", [0.0, 0.0, 0.0, 1.0]),
    "wide": ("mine/time", [float(2**k) for k in range(8)]),
}


@pytest.mark.parametrize("kind", SKEWED)
def test_honest_values_that_differ_much_all_count(kind: str) -> None:
    name, values = SKEWED[kind]
    assert not select(name, values).left_out
    pareto = (np.random.default_rng(1).pareto(1.2, 50) * 100).astype(int) + 1
    assert not select("train/steps", [int(steps) for steps in pareto]).left_out


@given(
    st.sampled_from([1e-9, 1.0, 1e9]),
    st.lists(st.floats(0.02, 50.0), min_size=1, max_size=9),
    st.sampled_from(["train/loss", "mine/regret"]),
)
@fed.PROPERTY
def test_values_within_a_factor_of_2500_of_each_other_all_count_if_small(
    scale: float, values: list[float], name: str
) -> None:
    factor = scale if scale <= 1.0 else 1.0
    assert not select(name, [factor * value for value in values]).left_out


# ---------------------------------------------------------------- identities, for any values

ANY = st.one_of(
    st.none(),
    st.floats(),
    st.integers(-(10**400), 10**400),
    st.sampled_from([1e308, -1e308, 5e-324, 1.7e308]),
    st.lists(st.floats(), max_size=3),
    st.lists(st.integers(-(2**63), 2**63), max_size=2),
    st.text(max_size=3),
    st.booleans(),
)
PLAUSIBLE = st.one_of(st.floats(0.0, 1.0), st.integers(0, 1))
WEIGHTS = st.one_of(st.integers(1, 10**12), st.floats(1e-300, 1e12))


@given(st.sampled_from(NAMES), st.lists(st.tuples(PLAUSIBLE, WEIGHTS), min_size=1, max_size=8))
@fed.PROPERTY
def test_honest_figures_are_exactly_the_weighted_mean(name: str, reported: list[tuple[Any, Any]]) -> None:
    """Computed as before: shares first, then a sum from left to right."""
    values, weights = [value for value, _ in reported], [weight for _, weight in reported]
    whole = math.fsum(weights)
    want = 0.0
    for value, weight in reported:
        want += weight / whole * float(value)
    if name.startswith("fednlr/rate_min"):
        want = float(min(values))
    assert figure(name, values, weights) == want
    assert figure(name, [[value, value] for value in values], weights) == [want, want]


@given(st.sampled_from(NAMES), st.lists(ANY, min_size=1, max_size=7), st.randoms(use_true_random=False))
@fed.PROPERTY
def test_what_counts_does_not_depend_on_the_order_of_the_clients(
    name: str, values: list[Any], random: Any
) -> None:
    order = list(range(len(values)))
    random.shuffle(order)
    one, other = select(name, values), select(name, [values[place] for place in order])
    assert {order[place] for place in other.used} == set(one.used)
    assert {order[place]: reason for place, reason in other.left_out.items()} == dict(one.left_out)
    assert all(values[place] is not None for place in (*one.used, *one.left_out))
    assert not set(one.used) & set(one.left_out)


@given(
    st.lists(st.tuples(st.floats(0.0, 1.0), st.integers(1, 1000)), min_size=2, max_size=6),
    ANY,
    st.integers(1, 1000),
    st.integers(0, 6),
)
@fed.PROPERTY
def test_a_client_moves_a_bounded_figure_by_its_share_at_most(
    honest: list[tuple[float, int]], lie: Any, weight: int, place: int
) -> None:
    """In exact arithmetic: within the range of the others' mean, extended by the share towards 0 or 1."""
    reported = [*honest[:place], (lie, weight), *honest[place:]]
    result = figure("train/accuracy", [value for value, _ in reported], [weight for _, weight in reported])
    whole = sum(weight for _, weight in honest)
    mean = sum(Fraction(value) * weight for value, weight in honest) / whole
    share = Fraction(weight, whole + weight)
    low, high = float(mean * (1 - share)), float(mean * (1 - share) + share)
    assert low - 1e-9 <= result <= high + 1e-9


@given(
    st.lists(st.floats(0.01, 10.0), min_size=2, max_size=8),
    ANY,
    st.integers(0, 8),
    st.sampled_from(["train/loss", "mine/regret"]),
)
@fed.PROPERTY
def test_a_client_moves_an_unbounded_figure_by_its_share_of_a_band(
    honest: list[float], lie: Any, place: int, name: str
) -> None:
    values = [*honest[:place], lie, *honest[place:]]
    result = figure(name, values)
    mean = math.fsum(honest) / len(honest)
    band = 100 * (max(honest) + (max(honest) - min(honest)) + 1)  # |c| + d + s
    assert abs(result - mean) <= (band + max(honest)) / len(values) + 1e-9
    value = agreed(numbers(name, select(name, values).used).values(), "smaller")
    assert value is not None and min(honest) <= value <= max(honest)


@given(st.sampled_from(NAMES), st.lists(st.tuples(ANY, WEIGHTS), min_size=1, max_size=6))
@fed.PROPERTY
def test_a_figure_is_always_finite_and_in_its_range(name: str, reported: list[tuple[Any, Any]]) -> None:
    result = figure(name, [value for value, _ in reported], [weight for _, weight in reported])
    for item in result if isinstance(result, list) else [] if result is None else [result]:
        assert math.isfinite(item) and type(item) is float
        assert fact(name).least <= item <= fact(name).most * (1 + 1e-12)
    assert form_of(result) is not None or result is None


def test_the_mean_of_the_largest_floats_is_finite() -> None:
    largest = 1.7976931348623157e308
    for count in range(3, 12):
        assert figure("train/loss", [largest] * count, [0.1 + k for k in range(count)]) == pytest.approx(largest)


# ---------------------------------------------------------------- the value that decides


@pytest.mark.parametrize(
    ("values", "smaller", "larger"),
    [
        ([3.0], 3.0, 3.0),
        ([1.0, 2.0], 2.0, 1.0),
        ([5.0, 1.0, 3.0], 3.0, 3.0),
        ([1, 2, 3, 4], 3.0, 2.0),
    ],
)
def test_more_than_half_reached_the_value_that_decides(values: list[float], smaller: float, larger: float) -> None:
    used = dict(enumerate(values))
    assert agreed(used.values(), "smaller") == smaller
    assert agreed(used.values(), "larger") == larger
    assert agreed([], "smaller") is None
    assert numbers("local/loss", {0: [1.0], 1: 2.0}) == {1: 2.0}


# ---------------------------------------------------------------- of a cohort


def test_what_does_not_count_is_counted_by_client() -> None:
    good = {"train/loss": 1.0, "train/accuracy": 0.5}
    cohort = cohort_of(good, {"train/loss": math.nan, "train/accuracy": 7.0}, good, good | {"x": math.nan})
    assert cohort.left_out == {2: {"train/loss": "nan is not finite", "train/accuracy": "7 is not in [0, 1]"}}
    assert cohort.counts() == {"screening/rejected": 0, "screening/left_out": 2}
    assert cohort_of(good, good).counts() == {"screening/rejected": 0}
    assert cohort.metrics() == {"train/loss": 1.0, "train/accuracy": 0.5}


def test_the_weights_of_the_others_are_shared_out_again() -> None:
    lies = [{"train/loss": 1.0}, {"train/loss": 4.0}, {"train/loss": math.nan}]
    cohort = cohort_of(*lies, examples=[10, 20, 10**12])
    assert cohort.metrics() == {"train/loss": pytest.approx(3.0)}
    assert cohort.metrics("uniform") == {"train/loss": pytest.approx(2.5)}


# ---------------------------------------------------------------- strategies that read each client's metrics


class Reads(FlowerFedAvg):
    """Keeps the metrics of the messages that it gets."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        self.seen = [dict(next(iter(message.content.metric_records.values()))) for message in replies]
        return super().aggregate_train(server_round, replies)


def test_the_strategy_inside_gets_a_valid_number_from_each_client() -> None:
    cohort = cohort_of(
        {"train/loss": 1.0, "done/x": 1, "curve": [1.0, 2.0]},
        {"train/loss": math.nan, "done/x": 1, "curve": [3.0, 4.0]},
        {"train/loss": 3, "done/x": math.nan},
    )
    metrics = [dict(message.content["metrics"]) for message in messages_of(cohort)]
    assert [each["train/loss"] for each in metrics] == [1.0, pytest.approx(2.5), 3]
    assert [each["curve"] for each in metrics] == [[1.0, 2.0], [3.0, 4.0], pytest.approx([7 / 3, 10 / 3])]
    assert all(list(each) == ["num-examples", "client-id", "train/loss", "curve"] for each in metrics)


@pytest.mark.skipif(not hasattr(FlowerFedAvg, CHECK), reason="this version of Flower always compares the metrics")
@fed.PROPERTY
@given(st.lists(st.dictionaries(st.sampled_from(NAMES), fed.numbers(False), max_size=4), min_size=1, max_size=4))
def test_a_users_strategy_sees_what_was_reported_and_the_figures_are_valid(reported: list[dict[str, Any]]) -> None:
    cohort = cohort_of(*reported)
    inside = Reads(**fed.OPEN)
    strategy = NormAnalysis(inside)
    fed.configure(strategy, 1, SENT, nodes=range(1, len(reported) + 1))
    record, metrics = strategy.aggregate_train(1, [reply.message for reply in cohort.replies])
    assert record is not None and metrics is not None
    for k, (seen, told) in enumerate(zip(inside.seen, reported, strict=True), 1):
        assert repr(seen) == repr({"num-examples": 10 * k, "client-id": k, **told}) or set(seen) == {
            "num-examples",
            "client-id",
            *told,
        }
    for name, value in metrics.items():
        assert np.isfinite(np.asarray(value, dtype=float)).all(), name
    assert {name for name in metrics if name in NAMES} == set(cohort.metrics())


REPORTED: list[dict[str, Any]] = [{"loss": 1.0, "rare": 7.0}, {"loss": math.nan}, {"loss": 1e6, "list": [1.0]}, {}]


class Sees:
    """A function for metrics that keeps what it gets."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.names: list[str] = []

    def __call__(self, contents: list[Any], key: str) -> MetricRecord:
        self.seen = [dict(next(iter(content.metric_records.values()))) for content in contents]
        self.names = [content["info"]["name"] for content in contents]
        return MetricRecord({"mine": float(len(contents))})


class Chooses(FlowerFedAvg):
    """A user's class, which changes nothing."""


@pytest.mark.parametrize(
    "make",
    [
        FedAvg,
        lambda **o: NormAnalysis(FedAvg(**o)),
        lambda **o: NormAnalysis(FlowerFedAvg(**o)),
        lambda **o: FedLWS(Chooses(**o)),
    ],
)
def test_a_users_function_gets_what_valid_clients_reported_and_their_records(make: Any) -> None:
    train, evaluate = Sees(), Sees()
    strategy = make(train_metrics_aggr_fn=train, evaluate_metrics_aggr_fn=evaluate, **fed.OPEN)
    replies = [fed.reply(n, {"w": np.ones(3)}, n, told) for n, told in enumerate(REPORTED, 1)]
    for n, reply in enumerate(replies, 1):
        reply.content["info"] = ConfigRecord({"name": f"c{n}"})
    fed.configure(strategy, 1, SENT, nodes=[1, 2, 3, 4])
    _, metrics = strategy.aggregate_train(1, replies)
    assert metrics is not None and metrics["mine"] == 4.0
    assert strategy.aggregate_evaluate(1, replies)["mine"] == 4.0
    want = [{"num-examples": n, **told} for n, told in enumerate(REPORTED, 1)]
    for function in (train, evaluate):
        assert list(map(repr, function.seen)) == list(map(repr, want))
        assert function.names == ["c1", "c2", "c3", "c4"]
    for each in (strategy, *getattr(strategy, "nested", list)()):  # nothing is left behind
        assert CHECK not in vars(each)
        assert getattr(each, "train_metrics_aggr_fn", train) is train


@pytest.mark.slow
@pytest.mark.parametrize("lie", [math.nan, math.inf, -1e308, 1e308, -5.0, [1.0], None])
@pytest.mark.parametrize("name", ["train/loss", "train_loss"])
def test_flowers_qfedavg_never_fails_because_of_one_client(name: str, lie: Any) -> None:
    """It raises each client's loss to a power, and raises an error if the loss is missing."""
    reported: list[dict[str, Any]] = [{name: 1.0}, {name: 2.0}, {} if lie is None else {name: lie}]
    strategy = NormAnalysis(QFedAvg(client_learning_rate=0.1, train_loss_key=name, **fed.OPEN))
    fed.configure(strategy, 1, SENT, nodes=[1, 2, 3])
    record, metrics = strategy.aggregate_train(1, [reply.message for reply in cohort_of(*reported).replies])
    assert record is not None and np.isfinite(record["w"].numpy()).all()
    assert metrics is not None and metrics[name] == pytest.approx(5 / 3)


@pytest.mark.slow
def test_of_two_clients_one_without_a_loss_leaves_the_model_as_it_is() -> None:
    def aggregate(*reported: dict[str, Any]) -> Any:
        strategy = NormAnalysis(QFedAvg(client_learning_rate=0.1, train_loss_key="train/loss", **fed.OPEN))
        fed.configure(strategy, 1, SENT, nodes=[1, 2])
        return strategy.aggregate_train(1, [reply.message for reply in cohort_of(*reported).replies])[0]

    assert aggregate({"train/loss": 1.0}, {"other": 1.0}) is None
    assert aggregate({"train/loss": math.nan}, {"train/loss": math.nan}) is None
    assert aggregate({"train/loss": 1.0}, {"train/loss": math.nan}) is not None
    with pytest.raises(AggregationError):  # the setting is wrong: no client reports this metric
        aggregate({"other": 1.0}, {"other": 1.0})


def test_a_function_for_metrics_gets_what_was_reported() -> None:
    def largest(contents: list[Any], key: str) -> MetricRecord:
        return MetricRecord({"largest": max(float(content["metrics"]["train/loss"]) for content in contents)})

    strategy = FedAvg(train_metrics_aggr_fn=largest, **fed.OPEN)
    fed.configure(strategy, 1, SENT, nodes=[1, 2, 3])
    replies = cohort_of({"train/loss": 1.0}, {"train/loss": 2.0}, {"train/loss": math.inf}).replies
    _, metrics = strategy.aggregate_train(1, [reply.message for reply in replies])
    assert metrics is not None and metrics["largest"] == math.inf


@pytest.mark.parametrize("value", ["text", None, np.float32(1.0), {"a": 1.0}, [1.0, "x"], True])
def test_a_metric_that_is_not_a_number_names_the_rule_and_the_metric(value: Any) -> None:
    class Talks(FedAvg):
        def rule(self, sent: Any, cohort: Cohort, state: Any) -> RoundResult:
            return super().rule(sent, cohort, state)._replace(metrics={"talks/good": 1.0, "talks/word": value})

    strategy = Talks(**fed.OPEN)
    fed.configure(strategy, 1, SENT, nodes=[1])
    replies = [reply.message for reply in cohort_of({}).replies]
    with pytest.raises(RunError, match=r"Talks returns the metric 'talks/word' = .*; a metric must be an int"):
        strategy.aggregate_train(1, replies)


# ---------------------------------------------------------------- evaluation


def evaluation(*reported: tuple[Any, dict[str, Any]]) -> list[Message]:
    return [
        fed.answer(n, {"metrics": MetricRecord({"num-examples": count, "client-id": n, **metrics})})
        for n, (count, metrics) in enumerate(reported, 1)
    ]


KINDS = {
    "a rule": lambda **options: FedAvg(**options),
    "a wrapper around Flower's": lambda **options: FedLWS(FlowerFedAvg(**options)),
    "a wrapper around ours": lambda **options: FedLWS(FedAvg(**options)),
    "the analysis": lambda **options: NormAnalysis(FlowerFedAvg(**options)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_used_alone_the_counts_of_an_evaluation_are_those_that_clients_report(kind: str) -> None:
    """Also of clients with other numbers of examples for training that were drawn for it in this round."""
    replies = evaluation((1000, {"acc": 0.5}), (100, {"acc": 0.9}), (7, {"acc": 0.0}))
    trained = cohort_of({}, {}, examples=[10, 100])
    strategy = KINDS[kind](**fed.OPEN)
    fed.configure(strategy, 1, SENT, nodes=[1, 2])
    strategy.aggregate_train(1, [reply.message for reply in trained.replies])
    want = FlowerFedAvg(**fed.OPEN).aggregate_evaluate(1, replies)
    got = strategy.aggregate_evaluate(1, replies)
    assert got is not None and want is not None and got["acc"] == pytest.approx(want["acc"], rel=1e-15)
    assert [reply.num_examples for reply in strategy.last_evaluation.replies] == [1000, 100, 7]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("drawn", [[1, 2, 3], [1], []])
def test_a_bound_on_counts_holds_for_all_clients_alike(
    kind: str, drawn: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever was drawn for training, a claim of 10^12 examples at accuracy 1 counts as the bound says."""
    replies = evaluation(
        (10, {"local/accuracy": 0.5}), (10, {"local/accuracy": 0.5}), (10**12, {"local/accuracy": 1.0})
    )
    strategy = KINDS[kind](**fed.OPEN)
    strategy.most_examples = {1: 10, 3: 10}
    fed.configure(strategy, 1, SENT, nodes=[1, 2, 3])
    strategy.aggregate_train(1, [fed.reply(n, {"w": np.ones(3)}, 10, {"client-id": n}) for n in drawn])
    with caplog.at_level("WARNING", logger="flwr"):
        got = [strategy.aggregate_evaluate(server_round, replies)["local/accuracy"] for server_round in (1, 2)]
    assert got == pytest.approx([2 / 3, 2 / 3])
    assert replies[2].content["metrics"]["num-examples"] == 10**12  # the message is not changed
    notes = [reply.notes for reply in strategy.last_evaluation.replies]
    text = (
        "1e+12 examples count as 10 (more than it can have, by its number of training examples in the roll call)"
    )
    assert notes == [(), (), (text,)]
    (line,) = [r.getMessage() for r in caplog.records if "in the evaluation of client" in r.getMessage()]
    assert line == f"round 1: in the evaluation of client 3, {text}; later ones are not logged"


def test_the_bound_on_shares_holds_in_evaluation() -> None:
    replies = evaluation(
        (10, {"local/accuracy": 0.5}), (10, {"local/accuracy": 0.5}), (10**12, {"local/accuracy": 1.0})
    )
    for strategy in (
        FedAvg(screening=Screening(max_share=0.5), **fed.OPEN),
        NormAnalysis(FlowerFedAvg(**fed.OPEN), screening=Screening(max_share=0.5)),
    ):
        metrics = strategy.aggregate_evaluate(1, replies)
        assert metrics is not None and metrics["local/accuracy"] == pytest.approx(0.75)


def test_evaluation_leaves_out_what_does_not_count() -> None:
    replies = [
        *evaluation((10, {"local/loss": 1.0}), (30, {"local/loss": 3.0}), (20, {"local/loss": -1e308})),
        fed.failure(9),
    ]
    cohort = screen_metrics(replies, "num-examples")
    assert cohort.left_out == {3: {"local/loss": "-1e+308 is not in [0, inf]"}}
    assert [item.node_id for item in cohort.rejected] == [9]
    for strategy in (FedAvg(**fed.OPEN), NormAnalysis(FlowerFedAvg(**fed.OPEN))):
        metrics = strategy.aggregate_evaluate(1, replies)
        assert metrics is not None and metrics["local/loss"] == pytest.approx(2.5)
        assert strategy.last_evaluation is not None and strategy.last_evaluation.left_out == cohort.left_out
    two = evaluation((10, {"local/loss": 1.0}), (30, {"local/loss": math.nan}))
    assert "local/loss" not in (NormAnalysis(FlowerFedAvg(**fed.OPEN)).aggregate_evaluate(1, two) or {})
    assert FedAvg(**fed.OPEN).aggregate_evaluate(1, []) is None


def test_a_warning_once_for_each_client(caplog: pytest.LogCaptureFixture) -> None:
    strategy = FedAvg(**fed.OPEN)
    lies = [{"train/loss": 1.0}, {"train/loss": 1.0}, {"train/loss": math.nan}]
    for server_round in (1, 2, 3):
        fed.configure(strategy, server_round, SENT, nodes=[1, 2, 3])
        with caplog.at_level("WARNING", logger="flwr"):
            strategy.aggregate_train(server_round, [reply.message for reply in cohort_of(*lies).replies])
    (line,) = [r.getMessage() for r in caplog.records if "figures that do not count" in r.getMessage()]
    assert line.startswith("round 1: client 3 reports figures that do not count: train/loss (nan is not finite);")
