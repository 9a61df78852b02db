"""Remarks on methods in one setting that cannot be compared directly: other budgets, other weights of clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fedstride.errors import FedstrideError
from server_app.build import build_strategy
from server_app.config.schema import Config

from .grouping import Group, method_values


def fairness(groups: Sequence[Group]) -> list[str]:
    """The remarks, for each setting."""
    return [*_for_each_setting(groups, _budget, _budgets), *_for_each_setting(groups, _weighting, _weightings)]


def _for_each_setting(
    groups: Sequence[Group], of: Callable[[Config], Any], said: Callable[[dict[str, Any]], str]
) -> list[str]:
    """A remark on each setting whose methods differ in what `of` returns."""
    remarks = []
    for setting in dict.fromkeys(run_group.setting for run_group in groups):
        by_method = {
            run_group.method: of(run_group.config) for run_group in groups if run_group.setting == setting
        }
        if len(set(by_method.values())) > 1:
            remarks.append(f"{setting}: {said(by_method)}")
    return remarks


def _budget(config: Config) -> int | None:
    """Mini-batches of a client in a round; None: full epochs."""
    steps: int | None = method_values(config).get("two_d_lrd.local_steps") or config.client.local_steps
    return steps


def _budgets(steps: dict[str, int | None]) -> str:
    counted = [f"{method} {n} mini-batches" for method, n in steps.items() if n]
    others = "" if all(steps.values()) else ", the others full epochs"
    return f"the methods train different amounts per round: {', '.join(counted)}{others}"


def _weighting(config: Config) -> bool:
    """Whether all clients have the same weight. False for a strategy of a file that is not loaded."""
    try:
        return build_strategy(config).p_k_weighting == "uniform"
    except FedstrideError:
        return False


def _weightings(equal: dict[str, bool]) -> str:
    named = ", ".join(method for method, uniform in equal.items() if uniform)
    return f"clients have equal weights (1/m) with {named}: compare with fedavg with strategy.weighting=uniform"
