"""Chooses one value of a key for each method, as who tunes every method over the same grid."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fedstride.errors import ConfigError, nearest
from fedstride.figures.metrics import is_better, require_direction
from fedstride.plain_numbers import is_number

from .grouping import Group, describe, differing, group, method_values, order_of, plain, setting_values
from .run_folders import Run

SHOWN = "the number that the table shows"


class Tuned(NamedTuple):
    """The groups with the runs of the chosen values, the value of each (method, setting), and remarks."""

    groups: list[Group]
    values: dict[tuple[str, str], str]
    remarks: list[str]


def tuned(
    runs: Sequence[Run], key: str, metric: str, number: Callable[[Run], float | None], what: str = SHOWN
) -> Tuned:
    """For each method and setting the runs with the value of `key` whose mean over the seeds is best.

    `number`: the run's number of the metric that chooses, None if it has none. `what`: its name in the remarks.
    Only values that all seeds of a method have are compared; of equal means, the first value in order is chosen.
    Raises ConfigError if the runs do not differ in the key, if no value can be compared, or if it is not known
    whether more or less of the metric is better.
    """
    require_direction(metric)
    grid = _grid(runs, key)
    kept: list[Group] = []
    values: dict[tuple[str, str], str] = {}
    remarks = [f"each method has the {key} of {', '.join(map(plain, grid))} with the best mean of {what}"]
    for run_group in group(runs, without=key):
        chosen, more = _choose(run_group, key, metric, number)
        remarks += more
        chosen_runs = tuple(run for run in run_group.runs if _value(run, key) == chosen)
        if not chosen_runs:  # no value has a number for all seeds, and the remarks say so
            continue
        kept.append(replace(run_group, runs=chosen_runs))
        values[run_group.method, run_group.setting] = describe({key: chosen}, [key]) if chosen is not None else ""
        edge = {grid[0]: "smallest", grid[-1]: "largest"}.get(chosen)
        if edge is not None and is_number(chosen):
            remarks.append(
                f"{run_group.method}, {run_group.setting}: {key}={plain(chosen)} is the {edge} of the grid"
            )
    if not kept:
        raise ConfigError(f"no method has a value of {key} for all its seeds: {'; '.join(remarks[1:])}")
    return Tuned(kept, values, remarks)


def _choose(
    run_group: Group, key: str, metric: str, number: Callable[[Run], float | None]
) -> tuple[Any, list[str]]:
    """The best value of a group, None if its runs do not have the key; and remarks on values left out."""
    seeds = {run.config.seed for run in run_group.runs}
    means: dict[Any, float] = {}
    remarks = []
    for value in sorted({_value(run, key) for run in run_group.runs} - {None}, key=order_of):
        figures = [number(run) for run in run_group.runs if _value(run, key) == value]
        numbers = [one for one in figures if one is not None and math.isfinite(one)]
        if len(numbers) == len(seeds):
            means[value] = math.fsum(numbers) / len(numbers)
        else:
            remarks.append(
                f"{run_group.method}, {run_group.setting}: {key}={plain(value)} is not compared: only "
                f"{len(numbers)} of {len(seeds)} seeds have a number"
            )
    best = None
    for value, mean in means.items():
        if best is None or is_better(metric, mean, means[best]):
            best = value
    return best, remarks


def _grid(runs: Sequence[Run], key: str) -> list[Any]:
    """The values of the key in these runs, in order."""
    values = {_value(run, key) for run in runs} - {None}
    if len(values) < 2:
        known = differing([{**method_values(run.config), **setting_values(run)} for run in runs])
        close = nearest(key, known)
        hint = f" Did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ConfigError(
            f"the runs do not differ in {key!r}, so there is nothing to choose.{hint} They differ in: "
            f"{', '.join(known) or 'nothing'}"
        )
    return sorted(values, key=order_of)


def _value(run: Run, key: str) -> Any:
    value = {**method_values(run.config), **setting_values(run)}.get(key)
    return tuple(value) if isinstance(value, list) else value
