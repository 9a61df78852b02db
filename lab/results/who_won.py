"""Who won by how much in each setting, in words; the comparison itself is in `paired_differences.py`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedstride.errors import FedstrideError, counted
from fedstride.figures.metrics import fact, is_better, require_direction, shown

from .fairness import ended_by_target
from .grouping import Group, group
from .paired_differences import LEAST, MOST, MethodPair, Ranking, comparable, standing
from .run_folders import Run, by_headline
from .tables import Statistic, TableComparison

FEW = 5
"""With fewer seeds only large differences can be decided: the page says so."""

SEEDS = ",".join(map(str, range(1, FEW + 1)))


@dataclass(frozen=True)
class Verdict:
    """One sentence about a setting, and warnings. `n`: the smallest number of seeds that a pair has in common."""

    text: str
    warnings: tuple[str, ...] = ()
    n: int = 0


@dataclass(frozen=True)
class ComparedSetting:
    """The figures of the methods of one setting by seed, larger is better, in the displayed unit."""

    name: str
    metric: str
    figures: Mapping[str, Mapping[int, float]]
    ended: int = 0  # how many of its runs ended before their last round, because they reached a target


def verdicts(
    runs: Sequence[Run],
    metric: str | None = None,
    statistic: Statistic | None = None,
    *,
    without: str | None = None,
) -> list[Verdict]:
    """For each setting in which at least two methods have a completed run: who won, or why nobody did.

    `metric`: None for the one that decides in each run. `statistic`: the number of a run; the last round if None.
    `without`: a key in which the runs of a setting may differ, as in `group`.
    Runs that repeat another one must have been left out (`newest`).
    """
    all_settings = settings([run for run in runs if run.completed], metric, statistic or Statistic(), without)
    methods = sum(len(comparable(setting.figures)[0]) for setting in all_settings)
    return [_verdict(setting, standing(setting.figures, methods), methods) for setting in all_settings]


def below_tables(
    tables: Sequence[TableComparison], metric: str | None, statistic: Statistic, tune: str | None, by: str | None
) -> list[str]:
    """The verdicts with their warnings that stand below tables, of settings with two or more common seeds.

    There are none for a target, and none if a value was chosen by the figures that are compared. The arguments are
    those with which `compare_all` made the tables.
    """
    if statistic.target is not None or (tune is not None and by is None):
        return []
    runs = [run for table in tables for part in table.groups for run in part.runs]
    found = [verdict for verdict in verdicts(runs, metric, statistic, without=tune) if verdict.n > 1]
    return list(dict.fromkeys(text for verdict in found for text in (verdict.text, *verdict.warnings)))


def settings(
    runs: Sequence[Run], metric: str | None, statistic: Statistic, without: str | None = None
) -> list[ComparedSetting]:
    """The settings in which at least two methods have a figure of a metric of which more or less is better."""
    all_settings = []
    for name, decided in (by_headline(runs) if metric is None else {metric: list(runs)}).items():
        try:
            require_direction(name)
        except FedstrideError:
            continue
        groups = group(decided, without=without)
        for setting in dict.fromkeys(run_group.setting for run_group in groups):
            figures = {
                run_group.method: _by_seed(run_group, name, statistic)
                for run_group in groups
                if run_group.setting == setting
            }
            with_figures = {method: values for method, values in figures.items() if values}
            if len(with_figures) > 1:
                its = [run for run_group in groups if run_group.setting == setting for run in run_group.runs]
                ended = sum(map(ended_by_target, its))
                all_settings.append(ComparedSetting(setting, name, with_figures, ended))
    return all_settings


def _by_seed(run_group: Group, metric: str, statistic: Statistic) -> dict[int, float]:
    factor = fact(metric).factor * (1.0 if is_better(metric, 1.0, 0.0) else -1.0)
    values = {run.config.seed: statistic.of(run.rows, metric) for run in run_group.runs}
    return {seed: factor * value for seed, value in values.items() if value is not None and math.isfinite(value)}


# ---------------------------------------------------------------- words


def _verdict(setting: ComparedSetting, ranking: Ranking | None, methods: int) -> Verdict:
    if ranking is None:
        names = ", ".join(setting.figures)
        return Verdict(
            f"No winner in {setting.name}: {names} have no seed in common, so they cannot be compared in pairs.",
            (_more_seeds("Without common seeds there is no verdict"),),
        )
    least = min(pair.result.n for pair in ranking.pairs)
    if setting.ended:
        text = (
            f"No verdict in {setting.name}: {counted(setting.ended, 'run')} ended at the target, before the last "
            "round, so what is compared is not the same training; compare the rounds with --target, or leave out "
            "target."
        )
        return Verdict(text, tuple(_left_out(setting, ranking)), least)
    text = _won(setting, ranking, methods) if ranking.won else _undecided(setting, ranking, methods)
    return Verdict(text, (*_left_out(setting, ranking), *_few(least)), least)


def _won(setting: ComparedSetting, ranking: Ranking, methods: int) -> str:
    pair, others = ranking.pairs[0], len(ranking.pairs) - 1
    amount, between = _amount(pair, setting.metric, methods)
    more = f", and against {'the other method' if others == 1 else f'each of the {others} other methods'} there"
    return (
        f"{pair.first} won against {pair.second} by {amount} of {shown(setting.metric)} in {setting.name} "
        f"({between}){more if others else ''}."
    )


def _undecided(setting: ComparedSetting, ranking: Ranking, methods: int) -> str:
    pair = next(pair for pair in ranking.pairs if not (pair.result.decided and pair.result.mean > 0))
    result, metric = pair.result, shown(setting.metric)
    amount, between = _amount(pair, setting.metric, methods)
    begin = f"No winner in {setting.name}: {pair.first} and {pair.second}"
    if result.equal:
        return f"{begin} have the same {metric} with each of {counted(result.n, 'seed')}."
    if result.n < LEAST and result.mean == 0:
        return (
            f"{begin} have the same mean {metric} over {counted(result.n, 'seed')}, and differ with each; whether "
            f"one is better cannot be said: a verdict needs at least {LEAST} seeds of both."
        )
    if result.n < LEAST:
        return (
            f"{begin} differ by {amount} of {metric} with {counted(result.n, 'seed')}; whether this is more "
            f"than chance cannot be said: a verdict needs at least {LEAST} seeds of both."
        )
    needs = f"more than {MOST}" if result.needed is None else f"about {result.needed}"
    return (
        f"{begin} differ by {amount} of {metric} ({between}), and the interval contains 0: with differences like "
        f"these, a verdict needs {needs} seeds."
    )


def _amount(pair: MethodPair, metric: str, methods: int) -> tuple[str, str]:
    """The mean difference with its unit, and its interval, with digits that fit the interval."""
    result, known = pair.result, fact(metric)
    unit = "percentage points" if known.unit == "%" else known.unit
    numbers = [number for number in (result.mean, result.low, result.high) if number is not None]
    mean, *ends = fitting(numbers, 2 if known.unit == "%" else 0)
    several = f" for {methods} methods together" if methods > 2 else ""
    between = f"95 % interval{several} {' to '.join(ends)}, paired over {counted(result.n, 'seed')}"
    return f"{mean} {unit}".strip(), between


def fitting(numbers: Sequence[float], least: int = 0) -> list[str]:
    """A mean, and perhaps the ends of its interval, with the same decimals, at least `least`.

    The half width has two significant digits, the mean if there is no interval; and no number other than 0 is
    written as 0, so that its sign is seen.
    """
    mean, *ends = numbers
    width = (max(ends) - min(ends)) / 2 if ends else abs(mean)
    largest = max(map(abs, numbers))
    clear = [value if abs(value) > 1e-12 * largest else 0.0 for value in numbers]  # not what rounding leaves of 0
    sizes = [width / 10, *(1.9 * abs(value) for value in clear)]  # of the last digit
    decimals = max([least, *(math.ceil(-math.log10(size)) for size in sizes if size > 0)])
    if decimals > 9:
        return [f"{value:.1e}" if value else "0" for value in clear]
    return [f"{value:.{decimals}f}" for value in clear]


def _left_out(setting: ComparedSetting, ranking: Ranking) -> list[str]:
    """What does not count: the runs whose seed the other method of a pair does not have, and whole methods."""
    said = []
    for pair in ranking.pairs:
        alone = {name: seeds for name, seeds in pair.alone.items() if seeds}
        if alone:
            count = sum(map(len, alone.values()))
            which = "; ".join(f"{name}: seed {', '.join(map(str, seeds))}" for name, seeds in alone.items())
            said.append(
                f"{setting.name}: {counted(count, 'run')} left out where {pair.first} and "
                f"{pair.second} are compared, because only one of the two has the seed ({which})."
            )
    if ranking.apart:
        said.append(
            f"{setting.name}: {', '.join(ranking.apart)} left out of the verdict, because of too few seeds in "
            f"common with the other methods (at least {LEAST})."
        )
    return said


def _few(least: int) -> list[str]:
    if least >= FEW:
        return []
    if least < LEAST:
        return [_more_seeds(f"n = {least} is too small for a verdict")]
    return [_more_seeds(f"n = {least} is small: only a difference of several times its deviation is seen")]


def _more_seeds(reason: str) -> str:
    return f"{reason}: run at least {FEW} seeds of each method, as in seed={SEEDS}."
