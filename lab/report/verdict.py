"""Who won by how much: the difference of two methods, paired by seed, with its interval over seeds.

The interval is Student's t interval of the mean of the differences d_s = a_s - b_s over the n seeds that both
have: mean(d) ± t(0.975, n - 1) · s(d) / √n, with the sample standard deviation s (n - 1). It assumes that
differences are about normal, and does not know that the winner was chosen among several methods.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedstride.errors import FedstrideError
from fedstride.metrics import fact, is_better, require_direction, shown

from ..results.grouping import Group, group
from ..results.runs import Run, by_headline
from ..results.tables import Statistic

LEVEL = 0.95
FEW = 5
"""With fewer seeds, an interval is wide, and hangs on the assumption of normal differences: the page warns."""


@dataclass(frozen=True)
class Paired:
    """The mean of `n` paired differences and its interval; without an interval for n = 1."""

    mean: float
    n: int
    low: float | None = None
    high: float | None = None

    @property
    def decided(self) -> bool:
        """Whether the interval is on one side of zero."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)


def paired(differences: Sequence[float]) -> Paired:
    """The mean of the differences (at least one) and its interval."""
    n = len(differences)
    mean = math.fsum(differences) / n
    if n < 2:
        return Paired(mean, n)
    from scipy.special import stdtrit

    deviation = math.sqrt(math.fsum((each - mean) ** 2 for each in differences) / (n - 1))
    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * deviation / math.sqrt(n)
    return Paired(mean, n, mean - half, mean + half)


@dataclass(frozen=True)
class Verdict:
    """One sentence about a setting, and warnings."""

    text: str
    warnings: tuple[str, ...] = ()


def verdicts(runs: Sequence[Run]) -> list[Verdict]:
    """For each setting in which at least two methods have a completed run: the best against the second best."""
    found = []
    for metric, decided in by_headline([run for run in runs if run.completed]).items():
        try:
            require_direction(metric)
        except FedstrideError:
            continue
        groups = group(decided)
        for setting in dict.fromkeys(each.setting for each in groups):
            verdict = _verdict([each for each in groups if each.setting == setting], metric, setting)
            found += [] if verdict is None else [verdict]
    return found


def _verdict(groups: Sequence[Group], metric: str, setting: str) -> Verdict | None:
    figures = {each.method: _by_seed(each, metric) for each in groups}
    means = {method: math.fsum(each.values()) / len(each) for method, each in figures.items() if each}
    if len(means) < 2:
        return None
    sign = 1.0 if is_better(metric, 1.0, 0.0) else -1.0
    first, second = sorted(means, key=lambda method: -sign * means[method])[:2]
    seeds = sorted(figures[first].keys() & figures[second].keys())
    if not seeds:
        return Verdict(
            f"{first} has the best mean of {shown(metric)} in {setting}, but no seed in common with {second}: "
            "they cannot be compared in pairs."
        )
    known = fact(metric)
    scale = known.factor
    result = paired([scale * sign * (figures[first][seed] - figures[second][seed]) for seed in seeds])
    unit = "percentage points" if known.unit == "%" else known.unit
    return Verdict(_sentence(first, second, result, unit, metric, setting), _warnings(result))


def _by_seed(each: Group, metric: str) -> dict[int, float]:
    values = {run.config.seed: Statistic().of(run.rows, metric) for run in each.runs}
    return {seed: value for seed, value in values.items() if value is not None}


def _sentence(first: str, second: str, result: Paired, unit: str, metric: str, setting: str) -> str:
    amount = (
        f"{abs(result.mean):.2f} {unit}".rstrip() if unit == "percentage points" else f"{result.mean:.4g} {unit}"
    )
    over = f"{result.n} seed{'' if result.n == 1 else 's'}"
    if result.low is None:
        return (
            f"{first} is ahead of {second} by {amount.strip()} of {shown(metric)} in {setting}, with {over}: "
            "whether this is more than chance cannot be said."
        )
    between = f"{100 * LEVEL:.0f} % interval {result.low:.2f} to {result.high:.2f}, paired over {over}"
    if not result.decided:
        return (
            f"No winner in {setting}: {first} and {second} differ by {amount.strip()} of {shown(metric)} "
            f"({between}), and the interval contains 0."
        )
    return f"{first} won against {second} by {amount.strip()} of {shown(metric)} in {setting} ({between})."


def _warnings(result: Paired) -> tuple[str, ...]:
    if result.n >= FEW:
        return ()
    return (
        f"n = {result.n} is too small to rely on: run at least {FEW} seeds of each method, as in seed=1,2,3,4,5.",
    )
