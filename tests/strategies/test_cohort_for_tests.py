"""The public helper that makes a cohort: rules give with it what they give in a round."""

from __future__ import annotations

from typing import Any

import federation as fed
import numpy as np
import pytest

from fedstride import FedAvg, FedMGDAPlus, FedNNNN, Scaffold, make_cohort
from fedstride.errors import ConfigError

SENT = fed.make_model()
MODELS = fed.noisy()(SENT, 1)


@pytest.mark.parametrize("rule", [FedAvg, FedNNNN, FedMGDAPlus])
def test_a_rule_gives_what_it_gives_in_a_round(rule: Any) -> None:
    strategy = rule(**fed.OPEN)
    result = strategy.rule(SENT, make_cohort(SENT, MODELS, fed.EXAMPLES), strategy.State())
    done = fed.play(rule(**fed.OPEN), 1, SENT, fed.noisy())
    assert fed.bits(result.model) == fed.bits(done.returned)


def test_clients_report_and_are_counted() -> None:
    cohort = make_cohort(SENT, MODELS[:2], [10, 30], [{"loss": 1.0}, {"loss": 2.0}])
    assert cohort.shares("examples") == [0.25, 0.75]
    assert cohort.metrics()["loss"] == pytest.approx(1.75)
    assert [reply.client_id for reply in cohort.replies] == [0, 1]
    assert make_cohort(SENT, MODELS).shares("examples") == fed.UNIFORM


def test_further_arrays_are_those_that_the_rule_asks_for() -> None:
    parameters = fed.only_parameters(SENT)
    moves = [{name: np.full_like(a, k) for name, a in parameters.items()} for k in range(3)]
    cohort = make_cohort(SENT, MODELS, extras={fed.SCAFFOLD: moves})
    assert [float(each["fc.bias"][0]) for each in cohort.extras(fed.SCAFFOLD)] == [0.0, 1.0, 2.0]
    assert Scaffold.needs  # the rule whose record this is


def without(name: str) -> dict[str, Any]:
    return {key: array for key, array in SENT.items() if key != name}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"models": [SENT, without("fc.bias")]}, r"models\[1\] is no valid reply: .*fc\.bias"),
        ({"models": [SENT | {"fc.bias": np.float32([1, np.nan, 0, 0])}]}, r"models\[0\] is no valid reply"),
        ({"models": [SENT], "num_examples": [0]}, r"models\[0\] is no valid reply"),
        ({"models": [SENT, SENT], "num_examples": [1]}, "num_examples has 1 entries for 2 models"),
        ({"models": [SENT], "metrics": [{}, {}]}, "metrics has 2 entries for 1 models"),
        ({"models": [SENT], "extras": {"c": []}}, "c has 0 entries for 1 models"),
    ],
)
def test_what_a_round_would_reject_is_an_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_cohort(SENT, **given)
