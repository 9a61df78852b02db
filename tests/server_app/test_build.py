"""What a strategy gets from the run's configuration and from its task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fedstride.errors import ConfigError
from fedstride.tasks.spec import Spec, Target
from server_app.build import build_strategy
from server_app.config.compose import compose

IMAGES = Spec.images((1, 28, 28), 7, (0.5,), (0.5,))


def innermost(*overrides: str, spec: Spec | None = IMAGES) -> Any:
    return list(build_strategy(compose([*overrides]), spec=spec).nested())[-1]


def test_a_rule_gets_the_facts_that_its_constructor_has() -> None:
    assert innermost("strategy=feddisco").num_classes == 7
    assert innermost("strategy=feddyn", "clients=13").num_clients == 13
    fair = innermost("strategy=q_fedavg", "client.lr=0.3", "client.lr_decay=0.9")
    assert (fair.client_lr, fair.client_lr_decay) == (0.3, 0.9)


def test_before_the_data_are_read_the_classes_are_not_known() -> None:
    assert innermost("strategy=feddisco", spec=None).num_classes is None


def test_feddisco_is_refused_for_a_task_without_classes() -> None:
    values = replace(IMAGES, target=Target.VALUES)
    with pytest.raises(
        ConfigError, match=r"^strategy\.num_classes = 0 is not allowed: .* needs a task with classes$"
    ):
        innermost("strategy=feddisco", spec=values)
    with pytest.raises(ConfigError, match=r"needs a task with classes$"):
        innermost("strategy=feddisco+fedlws", spec=values)


@pytest.mark.parametrize("strategy", ["fednova", "q_fedavg", "feddisco", "feddisco+fedlws"])
def test_numbers_of_clients_are_not_protected_so_privacy_is_refused(strategy: str) -> None:
    with pytest.raises(ConfigError, match=r"^strategy = .* privacy would not protect "):
        innermost(f"strategy={strategy}", "privacy=server_side")


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            "strategy=krum strategy.num_malicious_nodes=4",
            r"strategy\.num_malicious_nodes = 4 .*at most 3, .*there are 10",
        ),
        (
            "strategy=krum strategy.num_malicious_nodes=1 cohort=4",
            r"= 1 .*at most 0, .*needs 2f \+ 3 .*there are 4",
        ),
        ("strategy=multi_krum strategy.num_malicious_nodes=2 fraction=0.6", r"= 2 .*at most 1, .*there are 6"),
        (
            "strategy=multi_krum+fedlws strategy.inner.num_malicious_nodes=3 strategy.inner.num_nodes_to_select=8",
            r"strategy\.inner\.num_nodes_to_select = 8 .*at most 7: of m = 10 .*f = 3 may be hostile",
        ),
        ("strategy=trimmed_mean cohort=4", r"strategy\.beta = 0\.2 .*m = 4 clients in a round: at least 0\.25"),
        ("strategy=trimmed_mean cohort=3 strategy.beta=0.3", r"beta = 0\.3 .*at least 0\.33334"),
        ("strategy=trimmed_mean cohort=2 strategy.beta=0.49", r"beta = 0\.49 .*at least 3 of them"),
    ],
)
def test_a_robust_rule_is_refused_with_too_few_clients_for_its_assumption(overrides: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        innermost(*overrides.split(), "clients=10")


@pytest.mark.parametrize(
    "overrides",
    [
        "strategy=krum strategy.num_malicious_nodes=3",
        "strategy=krum cohort=2",
        "strategy=multi_krum strategy.num_malicious_nodes=1 cohort=5 strategy.num_nodes_to_select=4",
        "strategy=trimmed_mean cohort=4 strategy.beta=0.25",
        "strategy=trimmed_mean cohort=3 strategy.beta=0.33334",
        "strategy=trimmed_mean cohort=2 strategy.beta=0",
    ],
)
def test_a_robust_rule_with_enough_clients(overrides: str) -> None:
    innermost(*overrides.split(), "clients=10")


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        ("fedavg+fedlws+awd", "AWD acts on the aggregation"),
        ("fedavg+two_d_lrd+adadecay", "AdaDecay acts on the aggregation"),
        ("fedavg+awd+adadecay", "one without another decay"),
        ("fednnnn+multi_krum", "'multi_krum' is not a wrapper"),
        ("trimmed_mean+fedalr", "'fedalr' is not a wrapper"),
    ],
)
def test_a_combination_without_a_meaning_is_refused(strategy: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        innermost(f"strategy={strategy}")
