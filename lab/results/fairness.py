"""Remarks on runs in one setting that cannot be compared directly: other data, budgets, weights of clients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fedstride.errors import FedstrideError, counted
from fedstride.messages import wire
from server_app.build import build_strategy
from server_app.config.keys import mini_batches
from server_app.config.schema import Config
from server_app.stopping import Decision

from .grouping import Group
from .run_folders import Run

EVALUATED = ("test/", f"{wire.LOCAL}/")
"""The beginnings of the names of metrics that only a round with an evaluation has."""


def fairness(groups: Sequence[Group], metric: str = "", *, counts_evaluations: bool = False) -> list[str]:
    """The remarks, for each setting.

    `counts_evaluations`: whether the number of a run depends on how often `metric` was evaluated.
    """
    return [
        *_for_each_setting(groups, mini_batches, _budgets),
        *_for_each_setting(groups, _weighting, _weightings),
        *_data(groups),
        *_lengths(groups),
        *(_evaluations(groups) if counts_evaluations and metric.startswith(EVALUATED) else []),
    ]


def ended_by_target(run: Run) -> bool:
    """Whether the run ended before its last round because it reached its target."""
    config, rows = run.config, run.rows
    if config.target is None or not rows or rows[-1]["round"] >= config.rounds:
        return False
    return Decision(run.headline).after(*rows).reason_to_stop(target=config.target, patience=None) is not None


def _by_setting(groups: Sequence[Group]) -> dict[str, list[Run]]:
    runs: dict[str, list[Run]] = {}
    for run_group in groups:
        runs.setdefault(run_group.setting, []).extend(run_group.runs)
    return runs


def _data(groups: Sequence[Group]) -> list[str]:
    """A remark on each setting whose runs say that they had different data: a file or a site has changed."""
    remarks = []
    for setting, runs in _by_setting(groups).items():
        digests = {run.status["data"] for run in runs if run.status.get("data")}
        rows = sorted({run.status["rows"] for run in runs if run.status.get("rows") and _trains_all_rows(run)})
        if len(digests) > 1:
            remarks.append(f"{setting}: the runs had {len(digests)} different versions of the data of their task")
        if len(rows) > 1:
            remarks.append(
                f"{setting}: the clients of the runs had {rows[0]} to {rows[-1]} rows, not the same data"
            )
    return remarks


def _trains_all_rows(run: Run) -> bool:
    """Whether the rows of a run are those of all clients, each of which has its own file."""
    return run.config.partition.name == "own" and run.config.cohort_size == run.config.clients


def _lengths(groups: Sequence[Group]) -> list[str]:
    """A remark on each setting whose runs did not all end after the same round."""
    remarks = []
    for setting, runs in _by_setting(groups).items():
        ends = sorted({run.rows[-1]["round"] for run in runs if run.rows})
        if len(ends) > 1:
            of = counted(max(run.config.rounds for run in runs), "round")
            remarks.append(f"{setting}: the runs ended after {ends[0]} to {ends[-1]} of {of}")
    return remarks


def _evaluations(groups: Sequence[Group]) -> list[str]:
    """A remark on each setting whose runs were not evaluated equally often."""
    remarks = []
    for setting, runs in _by_setting(groups).items():
        often = sorted({run.config.evaluate_every for run in runs})
        if len(often) > 1:
            remarks.append(
                f"{setting}: the runs have different evaluate_every ({', '.join(map(str, often))}), on which best "
                "rounds, rounds to a target and means of several evaluations depend"
            )
    return remarks


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
