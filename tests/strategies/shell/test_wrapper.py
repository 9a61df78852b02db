"""Wrappers: what they protect Flower's own strategies from, what they pass on, what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import federation as fed
import flwr.serverapp.strategy as flwr
import numpy as np
import pytest
from federation import OPEN
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp.strategy import Strategy
from reference import Model

from fedstride.arrays.named import to_record, views
from fedstride.errors import ConfigError, RunError
from strategies import Fedalr, FedAvg, FedLWS, FedNNNN, NormAnalysis, TwoDLRD
from strategies.replies.screening_settings import Screening
from strategies.shell.wrapper import Wrapper

BUILT_IN: dict[str, Callable[[], Strategy]] = {
    "FedAvg": lambda: flwr.FedAvg(**OPEN),
    "FedAvgM": lambda: flwr.FedAvgM(server_learning_rate=0.5, server_momentum=0.9, **OPEN),
    "FedAdam": lambda: flwr.FedAdam(**OPEN),
    "FedYogi": lambda: flwr.FedYogi(**OPEN),
    "FedMedian": lambda: flwr.FedMedian(**OPEN),
    "FedTrimmedAvg": lambda: flwr.FedTrimmedAvg(**OPEN),
    "Krum": lambda: flwr.Krum(**OPEN),
    "MultiKrum": lambda: flwr.MultiKrum(num_nodes_to_select=2, **OPEN),
}
WRAPPERS: dict[str, Callable[[Strategy], Wrapper]] = {
    "FedLWS": FedLWS,
    "TwoDLRD": TwoDLRD,
    "NormAnalysis": NormAnalysis,
}
START = fed.only_parameters(fed.make_model())


def models() -> list[Model]:
    return fed.noisy(m=4)(START, 1)


def good_replies() -> list[Message]:
    return [fed.reply(node, model, 10 * node, {"loss": 0.5}) for node, model in enumerate(models()[:3], 1)]


def two_metric_records() -> Message:
    reported = MetricRecord({"num-examples": 10, "loss": 0.5})
    return fed.answer(9, {"arrays": to_record(models()[3]), "metrics": reported, "more": reported})


POISON: dict[str, Callable[[], Message]] = {
    "other arrays": lambda: fed.reply(9, {"other": np.zeros(2)}, 10, {"loss": 0.5}),
    "other shapes": lambda: fed.reply(9, {n: np.zeros(7, np.float32) for n in START}, 10, {"loss": 0.5}),
    "no count": lambda: fed.answer(9, {"arrays": to_record(models()[3]), "metrics": MetricRecord({"loss": 0.5})}),
    "list count": lambda: fed.reply(9, models()[3], [10], {"loss": 0.5}),
    "two metric records": two_metric_records,
    "no metric record": lambda: fed.answer(9, {"arrays": to_record(models()[3])}),
    "NaN count": lambda: fed.reply(9, models()[3], float("nan"), {"loss": 0.5}),
    "NaN": lambda: fed.reply(9, {n: np.full_like(a, np.nan) for n, a in START.items()}, 10, {"loss": 0.5}),
    "error": lambda: fed.failure(9),
}


def aggregate(strategy: Strategy, replies: Iterable[Message]) -> tuple[Model | None, dict[str, Any]]:
    fed.configure(strategy, 1, START)
    record, metrics = strategy.aggregate_train(1, replies)
    return (None if record is None else views(record)), dict(metrics or {})


# ---------------------------------------------------------------- protection


@pytest.mark.parametrize("poison", [name for name in POISON if name not in ("error", "NaN", "NaN count")])
def test_flowers_own_fails_the_run_without_a_wrapper(poison: str) -> None:
    """So that the tests below say something."""
    with pytest.raises(Exception, match=r".+"):
        aggregate(flwr.FedAvg(**OPEN), [*good_replies(), POISON[poison]()])


@pytest.mark.parametrize("poison", POISON)
@pytest.mark.parametrize("name", BUILT_IN)
def test_flowers_own_survives_in_a_wrapper_and_uses_the_good_replies(name: str, poison: str) -> None:
    spoiled, metrics = aggregate(FedLWS(BUILT_IN[name]()), [POISON[poison](), *good_replies()])
    clean, _ = aggregate(FedLWS(BUILT_IN[name]()), good_replies())
    assert spoiled is not None and clean is not None
    assert fed.bits(spoiled) == fed.bits(clean)
    assert all(np.isfinite(array).all() for array in spoiled.values())
    assert metrics["screening/rejected"] == 1


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("name", BUILT_IN)
def test_whole_numbers_that_no_client_changed_stay(name: str, wrapper: str) -> None:
    """Flower averages them in float64, which has no 2**63 - 1: it became the smallest number of 64 bits."""
    ends = {kind: np.array([np.iinfo(kind).max, np.iinfo(kind).min, 7], kind) for kind in ("int64", "uint64")}
    start = START | {f"end.{kind}": array for kind, array in ends.items()} | {"odd": np.array([2**53 + 1])}
    strategy = WRAPPERS[wrapper](BUILT_IN[name]())
    fed.configure(strategy, 1, start)
    models = [start | model for model in fed.noisy(m=3)(START, 1)]
    record, _ = strategy.aggregate_train(1, [fed.reply(node, model) for node, model in enumerate(models, 1)])
    assert record is not None
    for array in ("end.int64", "end.uint64", "odd"):
        assert views(record)[array].tolist() == start[array].tolist(), array


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_every_wrapper_protects(wrapper: str) -> None:
    strategy = WRAPPERS[wrapper](flwr.FedAvg(**OPEN))
    spoiled, metrics = aggregate(strategy, [p() for p in POISON.values()])
    assert spoiled is None
    asked = {"screening/not_done": 0} if strategy.half else {}
    assert metrics == {"screening/rejected": len(POISON), **asked}
    mixed, metrics = aggregate(
        WRAPPERS[wrapper](flwr.FedAvg(**OPEN)), good_replies() + [p() for p in POISON.values()]
    )
    assert mixed is not None
    assert metrics["screening/rejected"] == len(POISON)


@pytest.mark.parametrize(
    "make", [FedAvg, lambda **o: FedLWS(FedAvg(**o)), lambda **o: NormAnalysis(TwoDLRD(FedLWS(FedNNNN(**o))))]
)
def test_a_reply_rejected_is_logged_once(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    aggregate(
        make(**OPEN), [fed.failure(9), *(fed.reply(n, w_k) for n, w_k in enumerate(fed.noisy()(START, 1), 1))]
    )
    assert caplog.text.count("node 9 is rejected") == 1


@pytest.mark.parametrize("name", BUILT_IN)
def test_extra_metrics_of_one_client_are_left_out(name: str) -> None:
    """Flower's own raise InconsistentMessageReplies where the keys differ."""
    replies = good_replies()
    replies[0].content["metrics"]["extra"] = 1.0
    replies[1].content["metrics"]["other"] = [1.0, 2.0]
    model, metrics = aggregate(FedLWS(BUILT_IN[name]()), replies)
    clean, _ = aggregate(FedLWS(BUILT_IN[name]()), good_replies())
    assert model is not None and clean is not None
    assert fed.bits(model) == fed.bits(clean)
    assert metrics["loss"] == pytest.approx(0.5)
    assert "extra" not in metrics and "other" not in metrics


@pytest.mark.parametrize("name", BUILT_IN)
def test_arrays_in_another_order_reach_flowers_own_in_the_models(name: str) -> None:
    """FedAvgM (1.39) pairs arrays by position."""
    shuffled = [
        fed.reply(node, dict(reversed(model.items())), 10 * node, {"loss": 0.5})
        for node, model in enumerate(models()[:3], 1)
    ]
    model, _ = aggregate(FedLWS(BUILT_IN[name]()), shuffled)
    clean, _ = aggregate(FedLWS(BUILT_IN[name]()), good_replies())
    assert model is not None and clean is not None
    assert fed.bits(model) == fed.bits(clean)


@pytest.mark.parametrize("names", [("weights", "metrics"), ("arrays", "facts")])
@pytest.mark.parametrize("inner", [flwr.FedAvg, flwr.FedMedian, flwr.Krum])
def test_records_of_other_names_reach_flowers_own_under_one_name(inner: Any, names: Any) -> None:
    replies = [fed.reply(n, w_k) for n, w_k in enumerate(models()[:3], 1)]
    odd = [
        *replies[:2],
        fed.answer(3, {names[0]: replies[2].content["arrays"], names[1]: replies[2].content["metrics"]}),
    ]
    got, want = (aggregate(FedLWS(inner(**OPEN)), some)[0] for some in (odd, replies))
    assert fed.bits(got) == fed.bits(want)


def test_server_side_privacy_does_not_skip_the_round_for_one_failure() -> None:
    def make() -> FedLWS:
        inner = flwr.DifferentialPrivacyServerSideFixedClipping(
            flwr.FedAvg(**OPEN), noise_multiplier=0.0, clipping_norm=0.05, num_sampled_clients=3
        )
        return FedLWS(inner)

    replies = good_replies()
    before = [fed.fingerprint(message) for message in replies]
    model, _ = aggregate(make(), [fed.failure(9), *replies])
    assert model is not None
    moved = sum(float(np.sum((model[n].astype(float) - START[n]) ** 2)) for n in START) ** 0.5
    assert 0.0 < moved < 0.06  # clipped
    assert [fed.fingerprint(message) for message in replies] == before


# ---------------------------------------------------------------- what comes back


class Stub(flwr.FedAvg):
    """A strategy that returns what it was reported to."""

    def __init__(self, arrays: Model | None, metrics: dict[str, Any] | None = None) -> None:
        super().__init__(**OPEN)
        self.arrays, self.metrics = arrays, metrics
        self.got: list[Message] = []

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        self.got = list(replies)
        record = None if self.arrays is None else to_record(self.arrays)
        return record, None if self.metrics is None else MetricRecord(self.metrics)


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_an_inner_strategy_may_return_no_model(wrapper: str) -> None:
    model, metrics = aggregate(WRAPPERS[wrapper](Stub(None, {"why": 1.0})), good_replies())
    assert model is None
    assert (metrics["why"], metrics["loss"], metrics["screening/rejected"]) == (1.0, 0.5, 0)


def test_an_inner_strategy_may_return_no_metrics() -> None:
    model, metrics = aggregate(FedLWS(Stub(START)), good_replies())
    assert model is not None
    assert metrics["loss"] == 0.5


@pytest.mark.parametrize(
    ("arrays", "reported"),
    [
        ({"other": np.zeros(1)}, r"Stub returned a model whose arrays differ from the sent one's: \["),
        (START | {"extra": np.zeros(1)}, r"differ from the sent one's: \['extra'\]"),
        (START | {"scale": np.zeros(4)}, r"Stub returned 'scale' of shape \(4,\), sent was \(3,\)"),
    ],
    ids=["other", "extra", "shape"],
)
def test_another_model_from_inside_ends_the_run(arrays: Model, reported: str) -> None:
    with pytest.raises(RunError, match=reported):
        aggregate(FedLWS(Stub(arrays)), good_replies())


def test_the_result_has_the_sent_order_and_dtypes() -> None:
    result = {name: array.astype(np.float64) + 1.0 for name, array in reversed(START.items())}
    model, _ = aggregate(TwoDLRD(Stub(result)), good_replies())
    assert model is not None
    fed.assert_close(model, result, START)


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


def test_ids_and_counts_are_no_metrics() -> None:
    replies = [
        fed.reply(node, model, 10, {"client-id": node, "loss": 1.0}) for node, model in enumerate(models()[:3], 1)
    ]
    for inner in (flwr.FedAvg(**OPEN), FedAvg(**OPEN)):
        _, metrics = aggregate(FedLWS(inner), replies)
        assert "client-id" not in metrics and "num-examples" not in metrics
        assert metrics["loss"] == pytest.approx(1.0)


def test_metrics_of_all_levels_are_reported() -> None:
    _, metrics = aggregate(NormAnalysis(TwoDLRD(FedLWS(FedNNNN(**OPEN)))), good_replies())
    assert {"loss", "fednnnn/N", "fedlws/gamma/fc", "two_d_lrd/S", "norms/step", "screening/rejected"} <= set(
        metrics
    )


@pytest.mark.parametrize("inner", [FedAvg, flwr.FedAvg, flwr.Krum])
def test_least_and_largest_client_metrics_stay_so_around_any_strategy(inner: Any) -> None:
    reported = [{"fednlr/rate_min/fc": 0.1 * n, "fednlr/rate_max/fc": 1.0 * n} for n in (1, 2, 3)]
    replies = [fed.reply(n, w_k, 10, reported[n - 1]) for n, w_k in enumerate(fed.noisy()(START, 1), 1)]
    _, metrics = aggregate(FedLWS(inner(**OPEN)), replies)
    assert (metrics["fednlr/rate_min/fc"], metrics["fednlr/rate_max/fc"]) == (0.1, 3.0)


def test_a_client_cannot_name_the_servers_own_figures() -> None:
    replies = [
        fed.reply(n, w_k, 10, {"screening/rejected": 99.0}) for n, w_k in enumerate(fed.noisy()(START, 1), 1)
    ]
    assert aggregate(FedLWS(flwr.FedAvg(**OPEN)), replies)[1]["screening/rejected"] == 0


def test_the_inner_strategy_gets_plain_messages_in_the_order_of_ids() -> None:
    stub = Stub(START)
    replies = [
        fed.reply(node, model, 10, {"client-id": client})
        for node, client, model in zip((1, 2, 3), (30, 10, 20), models(), strict=False)
    ]
    aggregate(NormAnalysis(FedLWS(stub)), replies)
    assert [message.metadata.src_node_id for message in stub.got] == [2, 3, 1]
    assert all(isinstance(message, Message) for message in stub.got)


# ---------------------------------------------------------------- what is taken from inside


def test_the_inner_strategys_settings_hold_where_the_wrapper_says_nothing() -> None:
    inner = Fedalr(screening=Screening(quorum=3, factor=7.0), weighted_by_key="pixels", **OPEN)
    for wrapper in (FedLWS(inner), NormAnalysis(FedLWS(inner)), TwoDLRD(inner)):
        assert wrapper.screening == Screening(3, 7.0)
        assert (wrapper.weighting, wrapper.weighted_by_key) == ("uniform", "pixels")
    plain = FedLWS(flwr.FedAvg(weighted_by_key="pixels", **OPEN))
    assert plain.screening == Screening(quorum=1)
    assert (plain.weighting, plain.weighted_by_key) == ("examples", "pixels")


def test_the_wrappers_own_settings_come_first() -> None:
    wrapper = FedLWS(FedAvg(screening=Screening(quorum=1), **OPEN), screening=Screening(quorum=4, factor=2.0))
    assert wrapper.screening == Screening(4, 2.0)
    model, metrics = aggregate(wrapper, good_replies())
    assert (model, metrics) == (None, {"screening/rejected": 0})


def test_the_screen_factor_is_used() -> None:
    far = fed.reply(9, {n: a + np.float32(5.0) for n, a in START.items()}, 10, {"loss": 0.5})
    _, wide = aggregate(FedLWS(flwr.FedAvg(**OPEN), screening=Screening(factor=1000.0)), [*good_replies(), far])
    _, narrow = aggregate(FedLWS(flwr.FedAvg(**OPEN), screening=Screening(factor=2.0)), [*good_replies(), far])
    assert (wide["screening/rejected"], narrow["screening/rejected"]) == (0, 1)


def test_without_a_strategy_it_is_fedavg() -> None:
    for wrapper in (FedLWS(), TwoDLRD(), NormAnalysis()):
        assert type(wrapper.strategy) is FedAvg


def test_records_may_have_other_names() -> None:
    for inner in (FedAvg, flwr.FedAvg):
        strategy = FedLWS(inner(arrayrecord_key="weights", configrecord_key="reported", **OPEN))
        messages = fed.configure(strategy, 1, START)
        assert set(messages[0].content) == {"weights", "reported"}
        assert fed.bits(strategy.sent) == fed.bits(START)
        replies = [
            fed.answer(n, {"weights": to_record(w_k), "facts": MetricRecord({"num-examples": 10})})
            for n, w_k in enumerate(models()[:3], 1)
        ]
        record, _ = strategy.aggregate_train(1, replies)
        assert record is not None


def test_last_cohort_says_what_was_used() -> None:
    strategy = FedLWS(flwr.FedAvg(**OPEN))
    aggregate(strategy, [*good_replies(), fed.failure(9)])
    assert strategy.last_cohort is not None
    assert [reply.node_id for reply in strategy.last_cohort.replies] == [1, 2, 3]
    assert [item.node_id for item in strategy.last_cohort.rejected] == [9]


# ---------------------------------------------------------------- the other verbs


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("inner", [FedAvg, flwr.FedAvg])
def test_evaluation_is_the_inner_strategys(wrapper: str, inner: type[Any]) -> None:
    strategy = WRAPPERS[wrapper](inner(**OPEN))
    config = ConfigRecord()
    messages = list(strategy.configure_evaluate(3, to_record(START), config, fed.MemoryGrid()))
    assert sorted(message.metadata.dst_node_id for message in messages) == sorted(fed.NODES)
    assert {message.metadata.message_type for message in messages} == {"evaluate"}
    reported = [
        fed.answer(node, {"metrics": MetricRecord({"num-examples": n, "loss": float(n)})})
        for node, n in zip(fed.NODES, (1, 3, 4), strict=True)
    ]
    assert dict(strategy.aggregate_evaluate(3, reported) or {}) == {"loss": pytest.approx(26 / 8)}


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_summary_is_the_inner_strategys(wrapper: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="flwr"):
        WRAPPERS[wrapper](FedNNNN(**OPEN)).summary()
    assert "FedNNNN" in caplog.text


@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_nothing_is_sent_where_the_inner_strategy_sends_nothing(wrapper: str) -> None:
    strategy = WRAPPERS[wrapper](flwr.FedAvg(fraction_train=0.0))
    assert fed.configure(strategy, 1, START) == []
    assert fed.bits(strategy.sent) == fed.bits(START)


# ---------------------------------------------------------------- buffers of other kinds


@pytest.mark.parametrize("name", ["FedAvgM", "FedAdam"])
def test_boolean_buffers_around_server_optimisers_follow_the_majority(name: str) -> None:
    start = {"w": np.zeros(2), "mask": np.array([True, False])}
    masks = ([False, True], [False, True], [True, True])  # 10, 30 and 60 examples
    models = [{"w": np.ones(2), "mask": np.array(mask)} for mask in masks]
    done = fed.play(Wrapper(getattr(flwr, name)(**OPEN)), 1, start, lambda sent, t: models)
    assert done.returned is not None
    assert done.returned["mask"].tolist() == [True, True]
    models[2]["mask"] = np.array([False, False])
    done = fed.play(Wrapper(getattr(flwr, name)(**OPEN)), 1, start, lambda sent, t: models)
    assert done.returned is not None
    assert done.returned["mask"].tolist() == [False, False]


def test_buffers_that_differ_from_those_inside_are_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"buffers = \['\*\.ema'\] is not allowed: buffers must be \[\], as in FedAvg"
    ):
        FedLWS(FedAvg(), buffers=["*.ema"])
    assert FedLWS(FedAvg(buffers=["*.ema"])).buffers == ("*.ema",)
    assert FedLWS(flwr.FedAvgM(), buffers=["*.ema"]).buffers == ("*.ema",)
