"""One shell around a stack of parts: each reply is screened once; strangers' strategies inside and outside."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import federation as fed
import flwr.serverapp.strategy as flwr
import pytest
from federation import OPEN
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedstride.arrays.named import to_record
from strategies import (
    DifferentialPrivacy,
    FedAvg,
    FedLWS,
    FedNNNN,
    Momentum,
    NormAnalysis,
    Scaffold,
    TwoDLRD,
    Wrapper,
)
from strategies.replies import screening
from strategies.shell import flower_strategy

START = fed.only_parameters(fed.make_model())


def private(strategy: Strategy) -> DifferentialPrivacy:
    return DifferentialPrivacy(strategy, noise_seed=1, noise_multiplier=0.1)


STACKS: dict[str, Callable[[], Any]] = {
    "one": lambda: FedNNNN(**OPEN),
    "three with privacy": lambda: private(FedLWS(FedNNNN(**OPEN))),
    "three around Flower's": lambda: NormAnalysis(TwoDLRD(flwr.FedAdam(**OPEN))),
    "five": lambda: NormAnalysis(private(TwoDLRD(FedLWS(FedNNNN(**OPEN))))),
}


class Counted:
    """How often each message is read, and how often a round is screened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rounds = 0
        self.read: list[int] = []
        screen, read, metrics = flower_strategy.screen, screening._read, flower_strategy.screen_metrics

        def screened(*args: Any, **options: Any) -> Any:
            self.rounds += 1
            return screen(*args, **options)

        def metrics_screened(*args: Any, **options: Any) -> Any:
            self.rounds += 1
            return metrics(*args, **options)

        def once(message: Message, *args: Any, **options: Any) -> Any:
            self.read.append(message.metadata.src_node_id)
            return read(message, *args, **options)

        monkeypatch.setattr(flower_strategy, "screen", screened)
        monkeypatch.setattr(flower_strategy, "screen_metrics", metrics_screened)
        monkeypatch.setattr(screening, "_read", once)


# ---------------------------------------------------------------- a stack


@pytest.mark.parametrize("name", STACKS)
def test_a_reply_is_screened_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy, counted = STACKS[name](), Counted(monkeypatch)
    assert fed.play(strategy, 1, START, fed.noisy()).returned is not None
    assert counted.rounds == 1
    assert sorted(counted.read) == sorted(fed.NODES)
    reported = [fed.answer(n, {"metrics": MetricRecord({"num-examples": 1, "loss": 1.0})}) for n in fed.NODES]
    assert strategy.aggregate_evaluate(1, reported) is not None
    assert counted.rounds == 2


def test_a_strategy_in_a_wrapper_is_a_list_of_parts() -> None:
    core = FedNNNN(**OPEN)
    inner = FedLWS(core)
    outer = NormAnalysis(TwoDLRD(inner))
    assert [type(part) for part in outer.stack.parts] == [NormAnalysis, TwoDLRD, FedLWS, FedNNNN]
    assert outer.stack.core is core and outer.stack.acts[-1] is inner
    assert core.stack.parts == [core]
    around = FedLWS(flwr.FedAvg(**OPEN))
    assert [part.part_name for part in around.stack.parts] == ["FedLWS", "FedAvg"]


def test_the_states_of_the_parts_inside_are_below_inner() -> None:
    strategy = NormAnalysis(TwoDLRD(Momentum(**OPEN)))
    fed.rounds(strategy, START, fed.noisy(), [1, 2])
    keys = {key.removesuffix("/fc.weight") for key in strategy.state_dict()}
    assert {"path", "learnt/the model", "inner/S", "inner/d", "inner/previous", "inner/inner/momentum"} <= keys
    assert not any(key.startswith("inner/learnt") for key in keys)


# ---------------------------------------------------------------- strangers


class Around(Strategy):
    """A user's strategy, which holds another one and forwards."""

    def __init__(self, strategy: Strategy) -> None:
        self.strategy = strategy
        self.rounds: list[int] = []

    def summary(self) -> None:
        self.strategy.summary()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        self.rounds.append(server_round)
        return self.strategy.aggregate_train(server_round, replies)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return self.strategy.configure_evaluate(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        return self.strategy.aggregate_evaluate(server_round, replies)


class HerMean(Around):
    """A user's strategy, which aggregates by itself: the mean of the replies."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        models = [fed.model_in(reply) for reply in replies]
        return to_record({name: sum(model[name] for model in models) / len(models) for name in models[0]}), None


def same(got: Iterable[fed.Round], want: Iterable[fed.Round]) -> None:
    for one, other in zip(got, want, strict=True):
        assert one.returned is not None and other.returned is not None
        assert fed.bits(one.returned) == fed.bits(other.returned)
        assert one.metrics == other.metrics


@pytest.mark.parametrize("name", STACKS)
def test_a_wrapper_of_a_user_around_ours_changes_nothing(name: str) -> None:
    around = Around(STACKS[name]())
    same(fed.rounds(around, START, fed.noisy()), fed.rounds(STACKS[name](), START, fed.noisy()))
    assert around.rounds == [1, 2, 3, 4]


def test_ours_around_a_wrapper_of_a_user_around_ours() -> None:
    between, want = NormAnalysis(Around(FedLWS(Momentum(**OPEN)))), NormAnalysis(FedLWS(Momentum(**OPEN)))
    same(fed.rounds(between, START, fed.noisy()), fed.rounds(want, START, fed.noisy()))


@pytest.mark.parametrize(
    "make", [lambda: HerMean(flwr.FedAvg(**OPEN)), lambda: flwr.FedAvg(**OPEN), lambda: flwr.FedMedian(**OPEN)]
)
def test_a_strangers_strategy_may_be_the_innermost_of_three(make: Callable[[], Strategy]) -> None:
    for done in fed.rounds(NormAnalysis(TwoDLRD(FedLWS(make(), beta=0.0))), START, fed.noisy()):
        assert done.returned is not None
        assert list(done.returned) == list(START)
        assert {"norms/N", "two_d_lrd/S", "fedlws/tau_model"} <= set(done.metrics)


class Doubled(FedAvg):
    """A user's class derived from a rule of ours, which changes what Flower calls."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return super().configure_train(server_round, arrays, ConfigRecord({**config, "hers": 1}), grid)


class HerScaffold(Scaffold):
    """The same with a rule whose clients return more than a model."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        self.told = server_round
        return super().aggregate_train(server_round, replies)


class Loud(Wrapper):
    """A user's wrapper that changes what Flower calls."""

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        record, metrics = super().aggregate_train(server_round, replies)
        return record, MetricRecord({**(metrics or {}), "loud/round": server_round})


def test_a_class_of_a_user_that_changes_what_flower_calls_is_called_so() -> None:
    strategy = NormAnalysis(FedLWS(Doubled(**OPEN)))
    done = fed.play(strategy, 1, START, fed.noisy())
    assert done.config["hers"] == 1
    want = fed.play(NormAnalysis(FedLWS(FedAvg(**OPEN))), 1, START, fed.noisy())
    assert fed.bits(done.returned or {}) == fed.bits(want.returned or {})
    assert fed.play(NormAnalysis(Loud(FedAvg(**OPEN))), 1, START, fed.noisy()).metrics["loud/round"] == 1


def test_such_a_class_keeps_its_client_half_and_its_state() -> None:
    got, want = NormAnalysis(HerScaffold(num_clients=5, **OPEN)), NormAnalysis(Scaffold(num_clients=5, **OPEN))
    for one, other in zip(*(fed.rounds(each, START, fed.noisy()) for each in (got, want)), strict=True):
        assert fed.bits(one.returned or {}) == fed.bits(other.returned or {})
    fresh = NormAnalysis(HerScaffold(num_clients=5, **OPEN))
    fresh.load_state_dict(got.state_dict())
    assert fed.bits(fresh.strategy.state.control) == fed.bits(want.strategy.state.control)  # type: ignore[attr-defined]
