"""What strategies that are not ours keep between rounds: stored, taken back after a void round, reset, or said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import federation as fed
import flwr.serverapp.strategy as flwr
import numpy as np
import pytest
from flwr.serverapp.strategy import Strategy

from fedstride.arrays.named import views
from fedstride.errors import ConfigError
from fedstride.flower.strategy_internals import builtin_state
from strategies import FedLWS, FedNNNN, NormAnalysis, TwoDLRD
from strategies.shell.wrapper import Wrapper

START = {"w": np.zeros(3, np.float32)}
DP = {"noise_multiplier": 0.0, "num_sampled_clients": 3}


class Plain(flwr.FedAvg):
    """Keeps a sum, and does not say so."""

    kept: dict[str, Any] | None = None

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        arrays, metrics = super().aggregate_train(server_round, replies)
        if arrays is not None:
            self.kept = {name: array + (self.kept or {}).get(name, 0) for name, array in views(arrays).items()}
        return arrays, metrics


class Says(Plain):
    def state_dict(self) -> dict[str, Any]:
        return {"kept": self.kept, "rounds": 1}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        assert state["rounds"] == 1
        self.kept = state["kept"]


def moving(model: Any, server_round: int) -> list[Any]:
    return [{"w": model["w"] + np.float32(k + server_round)} for k in range(3)]


def around(strategy: Strategy) -> Strategy:
    return flwr.DifferentialPrivacyServerSideFixedClipping(strategy, clipping_norm=1e9, **DP)


@pytest.mark.parametrize(
    "wrapped", [NormAnalysis, FedLWS, lambda s: NormAnalysis(FedLWS(s)), lambda s: FedLWS(around(s))]
)
def test_a_strategy_that_says_what_it_keeps_has_it_after_a_resume(wrapped: Callable[[Any], Wrapper]) -> None:
    strategy, fresh = wrapped(Says(**fed.OPEN)), Says(**fed.OPEN)
    assert strategy.stack.core.not_kept is None
    fed.play(strategy, 2, START, moving)
    state = strategy.state_dict()
    other = wrapped(fresh)
    other.load_state_dict(state)
    assert fresh.kept is not None and fresh.kept["w"].tolist() == list(strategy.nested())[-1].kept["w"].tolist()
    list(strategy.nested())[-1].kept["w"][:] = 7.0
    again = wrapped(Says(**fed.OPEN))
    again.load_state_dict(state)
    assert list(again.nested())[-1].kept["w"].tolist() == fresh.kept["w"].tolist()  # the stored state is a copy


def test_ours_inside_flowers_privacy_is_stored() -> None:
    strategy = FedLWS(around(FedNNNN(**fed.OPEN)))
    fed.play(strategy, 2, START, moving)
    other = FedLWS(around(FedNNNN(**fed.OPEN)))
    other.load_state_dict(strategy.state_dict())
    inside = [list(each.nested())[-1].state.momentum["w"].tolist() for each in (strategy, other)]
    assert inside[0] == inside[1]


def test_a_void_round_takes_back_what_a_strategy_keeps() -> None:
    class Breaks(Says):
        def aggregate_train(self, server_round: int, replies: Any) -> Any:
            arrays, metrics = super().aggregate_train(server_round, replies)
            return (None if server_round == 2 else arrays), metrics

    inner = Breaks(**fed.OPEN)
    strategy = FedLWS(inner)
    fed.play(strategy, 1, START, moving)
    before = inner.kept["w"].tolist()
    fed.configure(strategy, 2, START, nodes=[1, 2, 3])
    assert (
        strategy.aggregate_train(2, [fed.reply(n, {"w": np.ones(3, np.float32)}, 1) for n in (1, 2, 3)])[0] is None
    )
    assert inner.kept["w"].tolist() == before


UNKNOWN: list[Callable[[], Strategy]] = [lambda: Plain(**fed.OPEN), lambda: around(Plain(**fed.OPEN))]
if hasattr(flwr, "FedXgbCyclic"):  # not in the first versions of Flower
    UNKNOWN.append(lambda: flwr.FedXgbCyclic())


@pytest.mark.parametrize("inner", UNKNOWN)
def test_a_strategy_that_does_not_say_it_is_named(inner: Callable[[], Strategy]) -> None:
    text = NormAnalysis(FedLWS(inner())).stack.core.not_kept
    assert text is not None and "\n" not in text
    assert (
        "is in no checkpoint, so this run cannot be resumed: define state_dict() and load_state_dict(state) in"
        in text
    )


KNOWN = (
    "FedAvg",
    "FedAvgM",
    "FedAdam",
    "FedAdagrad",
    "FedYogi",
    "FedMedian",
    "FedProx",
    "FedTrimmedAvg",
    "Krum",
    "QFedAvg",
)


@pytest.mark.parametrize("name", [name for name in KNOWN if hasattr(flwr, name)])
def test_flowers_own_are_known(name: str) -> None:
    options = (
        {"client_learning_rate": 0.1} if name == "QFedAvg" else {"proximal_mu": 0.1} if name == "FedProx" else {}
    )
    assert FedLWS(getattr(flwr, name)(**options, **fed.OPEN)).stack.core.not_kept is None


@pytest.mark.skipif(
    not hasattr(flwr, "DifferentialPrivacyServerSideAdaptiveClipping"), reason="this version of Flower has it not"
)
def test_the_adapted_norm_of_flowers_privacy_is_stored_and_reset() -> None:
    kind = flwr.DifferentialPrivacyServerSideAdaptiveClipping
    inner = kind(flwr.FedAvg(**fed.OPEN), **DP, initial_clipping_norm=0.5, clip_norm_lr=0.2)
    strategy = FedLWS(inner)
    assert strategy.stack.core.not_kept is None
    inner.clipping_norm = 0.25
    state = strategy.state_dict()
    fed.configure(strategy, 1, START, nodes=[1, 2, 3])
    assert inner.clipping_norm == 0.5
    strategy.load_state_dict(state)
    assert inner.clipping_norm == 0.25


@pytest.mark.parametrize("kind", [flwr.FedAvgM, flwr.FedAdam, flwr.FedYogi, flwr.FedAdagrad])
@pytest.mark.parametrize("wrapped", [FedLWS, NormAnalysis, TwoDLRD])
def test_a_second_start_begins_as_the_first(kind: Any, wrapped: Any) -> None:
    options = {"server_momentum": 0.9} if kind is flwr.FedAvgM else {}
    inner = kind(**options, **fed.OPEN)
    strategy = wrapped(inner)
    first = fed.rounds(strategy, START, moving)[-1].returned["w"].tolist()
    assert builtin_state(inner)
    assert fed.rounds(strategy, START, moving)[-1].returned["w"].tolist() == first
    assert fed.rounds(wrapped(inner), START, moving)[-1].returned["w"].tolist() == first


@pytest.mark.parametrize("between", [lambda s: s, Wrapper, lambda s: Wrapper(Wrapper(s))])
def test_two_parts_with_one_client_half_are_refused(between: Callable[[Strategy], Strategy]) -> None:
    with pytest.raises(
        ConfigError, match=r"^strategy = \['TwoDLRD'\] is not allowed: strategy must be a strategy without"
    ):
        TwoDLRD(between(TwoDLRD()))
