"""Properties of metrics: every documented one is declared; an undeclared one is averaged, without a direction."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedstride.errors import ConfigError
from fedstride.figures import metrics
from fedstride.figures.metrics import (
    FACTS,
    Metric,
    declare,
    declared,
    directed,
    fact,
    is_better,
    over_clients,
    shown,
)

ROOT = Path(__file__).parents[3]


def documented() -> dict[str, str]:
    """For every metric in the table of docs/metrics.md, which values are better; "" for neither."""
    text = (ROOT / "docs/metrics.md").read_text()
    found = {}
    for row in re.findall(r"^\| (`.+?) \| (\w*) ?\| .+ \|$", text, re.MULTILINE):
        names, better = row
        rule = ""
        for name in re.findall(r"`([^`]+)`", names):
            rule = rule if name.startswith("/") else name.rpartition("/")[0].partition("/")[0] or rule
            if not name.startswith("/"):
                found[name if "/" in name else f"{rule}/{name}"] = better
    return found


def test_the_documentation_agrees_with_the_declared_metrics() -> None:
    table = documented()
    assert len(table) > 40
    assert {"fedlws/tau", "fednlr/rate_max", "norms/step", "seconds/evaluate", "test/loss"} <= set(table)
    for name, better in table.items():
        known = declared(name)
        assert known is not None, name
        assert (known.better or "") == better, name


def test_every_declared_metric_is_documented() -> None:
    symbols = {name.partition("/<")[0] for name in documented()}
    rules = {f"{name.partition('/')[0]}/*" for name in symbols}
    assert {key for key in FACTS if "/" in key} <= symbols | rules


@pytest.mark.parametrize(
    ("name", "better", "how", "unit", "title"),
    [
        ("test/accuracy", "larger", "mean", "%", "test accuracy"),
        ("train/loss", "smaller", "mean", "", "train loss"),
        ("seconds/aggregate", "smaller", "mean", "s", "aggregate time"),
        ("bytes/up", "smaller", "mean", "bytes", "upload"),
        ("fednlr/rate_min/conv1", None, "min", "", "fednlr rate min conv1"),
        ("fednlr/rate_max/a.b/c", None, "max", "", "fednlr rate max a.b c"),
        ("fednlr/T/conv1", None, "mean", "", "fednlr T conv1"),
        ("client-id", None, "none", "", "client-id"),
        ("num-examples", None, "none", "", "num-examples"),
        ("norms/N/fc", None, "mean", "", "norms N fc"),
        ("mine/regret_min", None, "mean", "", "mine regret min"),  # not declared
        ("loss", None, "mean", "", "loss"),
        ("", None, "mean", "", ""),
        ("/", None, "mean", "", " "),
    ],
)
def test_properties_by_name(name: str, better: str | None, how: str, unit: str, title: str) -> None:
    assert (fact(name).better, over_clients(name), fact(name).unit, shown(name)) == (better, how, unit, title)


def test_which_value_is_better() -> None:
    assert is_better("test/accuracy", 0.9, 0.8)
    assert is_better("test/loss", 0.8, 0.9)
    assert is_better("seconds/aggregate", 0.8, 0.9)


@pytest.mark.parametrize("name", ["norms/N", "fedlws/gamma/fc1", "mine/regret", "accuracy"])
def test_a_metric_without_a_direction_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        is_better(name, 1.0, 2.0)
    assert str(caught.value) == (
        f"{name} has no best value and no target, because neither larger nor smaller values of it are better; "
        f"use one of {', '.join(directed())}"
    )
    assert {"test/loss", "test/accuracy", "seconds/*"} <= set(directed())


def test_a_user_defined_rule_declares_its_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "FACTS", dict(FACTS))
    regret = Metric("smaller", unit="bits", name="regret")
    declare("mine", {"regret": regret, "least": Metric(over_clients="min")})
    declare("mine", {"regret": regret})  # again, as if the module were loaded a second time
    assert is_better("mine/regret", 1.0, 2.0)
    assert over_clients("mine/least/fc1") == "min"
    assert shown("mine/regret") == "regret"
    with pytest.raises(ConfigError, match=r"the metric 'mine/regret' is already declared with other properties"):
        declare("mine", {"regret": Metric("larger")})


@pytest.mark.parametrize(
    ("metric", "target", "said"),
    [
        ("test/accuracy", 95.0, "test/accuracy is a fraction, so 95 % is 0.95"),
        ("local/auroc", -0.5, "local/auroc is between 0 and 1"),
        ("test/loss", float("nan"), "test/loss is between"),
    ],
)
def test_a_target_that_no_run_can_reach_is_refused(metric: str, target: float, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        metrics.check_target(metric, target)
    metrics.check_target(metric, 0.5)
