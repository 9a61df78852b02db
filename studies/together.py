"""The five papers' methods together: what each pair and each triple adds to the best of its parts.

Reads runs of `experiment=methods` with several rates, seeds and partitions (the commands are in
docs/reproduction.md), prints a table in Markdown and draws a picture. For each method and partition the rate, and
Fedalr's rate of the server, are those with the best mean of `local/accuracy`, on examples that clients hold out;
the test set chooses nothing.

    python studies/together.py RUNS... [-o together.png]

The parts of A+B+C are A+B, A+C and B+C, those of A+B are A and B. Which of them is the best, `local/accuracy`
says, too. Fedalr alone is compared with FedAvg with equal weights, as it has them. A difference is that of the
test accuracy, paired by seed, and is decided by the rule of `fedstride report` for two methods. The rule is used
once for each pair and each triple, so some are decided by chance: at most one in 25 of those that are equally
good.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np

from lab.plots.canvas import drawn, save
from lab.plots.panels import Map, PlotFigure
from lab.results.grouping import Group, Values, method_values
from lab.results.paired_differences import Paired, paired
from lab.results.run_folders import Run, find_runs
from lab.results.tables import TableComparison, compare

RATE, SHOWN, CHOOSING = "client.lr", "test/accuracy", "local/accuracy"
NAMES = {"fednnnn": "FedNNNN", "fedalr": "Fedalr", "fedlws": "FedLWS", "two_d_lrd": "2D-LRD", "fednlr": "FedNLR"}
"""The five, in the order in which they act: two rules of aggregation, shrinking, detector, client."""


class Result(NamedTuple):
    """A method with its chosen rate: test accuracy (%) by seed, and what chose the rate, the mean over seeds."""

    figures: Mapping[int, float]
    rate: str
    chosen_by: float


Parts = frozenset[str]
"""The methods of the five that a method is made of, and EQUAL; without one: FedAvg."""

EQUAL = "equal weights"
FEDALR = frozenset({"fedalr"})


def results(runs: Sequence[Run]) -> dict[str, dict[Parts, Result]]:
    """By setting (the partition) and method. Raises ValueError for variants that nothing here chooses from."""
    table = compare(runs, SHOWN, tune=RATE, by=CHOOSING)
    variants: dict[str, dict[Parts, dict[float | None, Result]]] = {setting: {} for setting in table.settings}
    for group in table.groups:
        values = method_values(group.runs[0].config)
        parts, server_rate = parts_of(group, values), values.get("fedalr.server_lr")
        of_method = variants[group.setting].setdefault(parts, {})
        if server_rate in of_method:
            raise ValueError(f"{name(parts)} has several variants in {group.setting}, one is {group.method}")
        of_method[server_rate] = _result(table, group)
    return {
        setting: {parts: _best(of_method) for parts, of_method in methods.items()}
        for setting, methods in variants.items()
    }


def _best(by_server_rate: Mapping[float | None, Result]) -> Result:
    server_rate, result = max(by_server_rate.items(), key=lambda item: item[1].chosen_by)
    if len(by_server_rate) == 1:
        return result
    return result._replace(rate=f"{result.rate}, server {server_rate:g}")


def parts_of(group: Group, values: Values) -> Parts:
    """`fedavg+fedlws` is FedLWS alone. `values`: those of the method."""
    parts = frozenset(group.runs[0].method.split("+")) - {"fedavg"}
    return parts | {EQUAL} if values.get("fedavg.weighting") == "uniform" else parts


def _result(table: TableComparison, group: Group) -> Result:
    figures = {run.config.seed: 100 * _last(run, SHOWN) for run in group.runs}
    rate = table.cells[group.method, group.setting].chosen.removeprefix("lr=")
    return Result(figures, rate, mean(_last(run, CHOOSING) for run in group.runs))


def _last(run: Run, metric: str) -> float:
    return float([row[metric] for row in run.rows if row.get(metric) is not None][-1])


def best_part(parts: Parts, among: Mapping[Parts, Result]) -> Parts | None:
    """The best of the methods with one part fewer; None if there are none, as for FedAvg."""
    if parts == FEDALR and frozenset({EQUAL}) in among:
        return frozenset({EQUAL})
    fewer = [other for part in parts if (other := parts - {part}) in among]
    return max(fewer, key=lambda other: among[other].chosen_by, default=None)


def more(first: Result, second: Result) -> Paired:
    """How much better the first is, in points, paired by seed."""
    return paired([first.figures[seed] - second.figures[seed] for seed in sorted(first.figures)])


# ---------------------------------------------------------------- table and picture


def table_of(made: Mapping[str, Mapping[Parts, Result]]) -> list[str]:
    """The lines of the Markdown table: one method each, those with few parts first."""
    methods = sorted({parts for one in made.values() for parts in one}, key=_order)
    head = "".join(f" | {setting} | more than its best part" for setting in made)
    lines = [f"| method{head} |", "|---" + "|--:|---" * len(made) + "|"]
    for parts in methods:
        cells = (cell for among in made.values() for cell in _cells(parts, among))
        lines.append(f"| {' | '.join([name(parts), *cells])} |")
    return lines


def _cells(parts: Parts, among: Mapping[Parts, Result]) -> tuple[str, str]:
    if parts not in among:
        return "", ""
    result, best = among[parts], best_part(parts, among)
    values = np.array(list(result.figures.values()))
    shown = f"{values.mean():.2f} ± {values.std(ddof=1):.2f} ({result.rate})"
    return shown, "" if best is None else _difference(more(result, among[best]), best)


def _difference(difference: Paired, best: Parts) -> str:
    """`+1.20 FedNNNN`, bold if it is decided."""
    amount = f"{difference.mean:+.2f}"
    return f"{f'**{amount}**' if difference.decided else amount} {name(best)}"


def name(parts: Parts) -> str:
    """`FedNNNN + FedLWS`."""
    methods = " + ".join(NAMES[part] for part in NAMES if part in parts) or "FedAvg"
    return f"{methods}, {EQUAL}" if EQUAL in parts else methods


def _order(parts: Parts) -> tuple[int, list[int], bool]:
    return len(parts - {EQUAL}), [list(NAMES).index(part) for part in NAMES if part in parts], EQUAL in parts


def picture(made: Mapping[str, Mapping[Parts, Result]]) -> PlotFigure:
    """For each partition a map: on its diagonal each of the five alone, beside it the pairs, against FedAvg."""
    values = {setting: _gains(among) for setting, among in made.items()}
    every = np.stack(list(values.values()))
    ends = float(np.nanmin(every)), float(np.nanmax(every))
    maps = [
        Map(
            "gain over FedAvg", setting, "", gains, list(NAMES.values()), list(NAMES.values()),
            "test accuracy minus FedAvg's (points)", x="", title=setting, limits=ends, form="{:+.1f}",
        )
        for setting, gains in values.items()
    ]  # fmt: skip
    where = "on the diagonal a method alone, elsewhere two together"
    notes = [where, "means over seeds", "white: not possible, or not measured"]
    return PlotFigure("The five papers' methods together", notes, [maps], size=(4.4, 3.6))


def _gains(among: Mapping[Parts, Result]) -> np.ndarray:
    gains = np.full((len(NAMES), len(NAMES)), math.nan)
    for row, first in enumerate(NAMES):
        for column, second in enumerate(NAMES):
            result = among.get(frozenset({first, second}))
            if result is not None:
                gains[row, column] = more(result, among[frozenset()]).mean
    return gains


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table; draw the picture if a file is named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args(arguments)
    runs, _ = find_runs(given.runs)
    made = results(runs)
    print(*table_of(made), sep="\n")
    if given.output is not None:
        save(drawn(picture(made)), given.output)


if __name__ == "__main__":
    main()
