"""A strategy whose result is not finite: the round changes nothing, neither the model nor any state."""

from __future__ import annotations

from typing import Any

import federation as fed
import numpy as np
import pytest
from flwr.app import ArrayRecord
from flwr.serverapp import strategy as flwr

from fedstride.arrays.named import Layout, to_record, views
from strategies import FedAvg, FedLWS, Momentum, NormAnalysis, TwoDLRD
from strategies.shell.stack import RoundResult
from strategies.shell.wrapper import Wrapper

OPEN = {"fraction_train": 1.0, "min_train_nodes": 1, "min_available_nodes": 1}
START = fed.make_model()


def broken(model: Any, value: float) -> Any:
    """The model with one value of its first parameter replaced."""
    name = Layout.of(model).parameters[0]
    array = np.array(model[name])
    array.flat[-1] = value
    return {**model, name: array}


class BreakingMomentum(Momentum):
    """Momentum that overflows in round 2."""

    value = np.inf
    calls = 0

    def rule(self, sent: Any, cohort: Any, state: Any) -> RoundResult:
        self.calls += 1
        result = super().rule(sent, cohort, state)
        return result._replace(model=broken(result.model, self.value)) if self.calls == 2 else result


class BreakingFedAdam(flwr.FedAdam):
    """Flower's FedAdam that overflows in round 2; it keeps its state in attributes."""

    calls = 0

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        self.calls += 1
        record, metrics = super().aggregate_train(server_round, replies)
        if self.calls == 2:
            assert record is not None
            record = to_record(broken(views(record), np.nan))
        return ArrayRecord(dict(record or {})), metrics


class BreakingWrapper(Wrapper):
    """A wrapper that overflows in round 2."""

    calls = 0

    def act(self, sent: Any, cohort: Any, result: Any, state: Any) -> RoundResult:
        self.calls += 1
        return RoundResult(broken(result, -np.inf) if self.calls == 2 else result, state, {})


def state_of(strategy: Any) -> Any:
    """Without what the screening learnt from the replies, which are valid."""
    return fed.bits({k: v for k, v in strategy.state_dict().items() if not k.startswith("learnt/")})


MAKE = {
    "a rule": lambda: BreakingMomentum(**OPEN),
    "inside two wrappers": lambda: NormAnalysis(FedLWS(BreakingMomentum(**OPEN))),
    "Flower's own": lambda: NormAnalysis(Wrapper(BreakingFedAdam(**OPEN))),
    "a wrapper around a rule with state": lambda: TwoDLRD(BreakingWrapper(Momentum(**OPEN))),
    "a wrapper around Flower's": lambda: BreakingWrapper(flwr.FedAdam(**OPEN)),
}


@pytest.mark.parametrize("name", MAKE)
def test_a_result_that_is_not_finite_voids_the_round(name: str, caplog: pytest.LogCaptureFixture) -> None:
    strategy = MAKE[name]()
    first = fed.play(strategy, 1, START, fed.noisy())
    assert first.returned is not None
    before = state_of(strategy)
    second = fed.play(strategy, 2, first.returned, fed.noisy())
    assert second.returned is None
    assert second.metrics["screening/not_finite"] == 1
    assert state_of(strategy) == before
    assert "contains NaN or infinity; the round changes nothing" in caplog.text
    third = fed.play(strategy, 3, first.returned, fed.noisy())
    assert third.returned is not None
    assert all(np.isfinite(array).all() for array in third.returned.values() if array.dtype.kind == "f")


def test_a_model_that_overflows_float32_is_not_returned() -> None:
    """The updates are finite in float32, and so is each sum in float64; their sum in float32 is not."""
    sent = {"a": np.full(2, 3e38, np.float32)}
    strategy = FedAvg(**OPEN)
    got = fed.play(strategy, 1, sent, lambda w, server_round: [w] * 3)
    assert got.returned is not None  # the mean of equal models is this model
    rule = Momentum(gamma=0.9, **OPEN)
    step = {"a": np.full(2, 3.2e38, np.float32)}
    fed.play(rule, 1, {"a": np.zeros(2, np.float32)}, lambda w, server_round: [step] * 3)
    assert (
        fed.play(rule, 2, step, lambda w, server_round: [{"a": np.full(2, 3.4e38, np.float32)}] * 3).returned
        is None
    )
