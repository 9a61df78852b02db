"""Tables of results: methods by settings, with mean and standard deviation over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pandas as pd

from fedstride.errors import ConfigError, nearest
from fedstride.figures.metrics import check_target, fact, is_better, require_direction, shown, with_unit
from fedstride.plain_numbers import is_number
from server_app.records import row_values
from server_app.records.row_values import Row
from server_app.reports.curve import points
from server_app.stopping import chosen_round, deciding_row

from .fairness import fairness
from .formats import Grid, Sheet
from .grouping import Group, group, newest
from .run_folders import Run, by_headline
from .tuning import Tuned, tuned

NONE = "–"


@dataclass(frozen=True)
class Statistic:
    """The number of a run: mean of its last evaluations, best round, or number of rounds to reach a target.

    An evaluation is a round, from round 1 on, that has the metric; if every round has it, the last evaluations are
    the last rounds. A run in which one of these has no finite value, because it diverged, has no number.
    """

    last: int = 1
    best: bool = False
    target: float | None = None

    def __post_init__(self) -> None:
        if self.last < 1:
            raise ConfigError(f"last = {self.last} is not allowed: it must be at least 1 evaluation")
        if (self.last > 1) + self.best + (self.target is not None) > 1:
            raise ConfigError("last, best and target exclude each other: make one table for each")

    def check(self, metric: str) -> None:
        """Raises ConfigError if the statistic is not defined for the metric."""
        if self.best or self.target is not None:
            require_direction(metric)
        if self.target is not None:
            check_target(metric, self.target)

    def of(self, rows: Sequence[Row], metric: str) -> float | None:
        """The run's number; None if it has none, for example if a target was not reached."""
        if self.best:
            return _best(rows, metric)
        if self.target is not None:
            deciding = _measured([deciding_row(row, metric) for row in rows], metric)
            reached = (at for at, value in deciding if not is_better(metric, self.target, value))
            first = next(reached, None)
            return None if first is None else float(first)
        values = [value for _, value in _evaluations(rows, metric)[-self.last :]]
        finite = [value for value in values if value is not None]
        return math.fsum(finite) / len(finite) if finite and len(finite) == len(values) else None

    def gaps(self, rows: Sequence[Row], metric: str) -> bool:
        """Whether the run's last evaluations are not its last rounds."""
        at = [round_ for round_, _ in _evaluations(rows, metric)][-self.last :]
        return bool(at) and at != list(range(rows[-1]["round"] - len(at) + 1, rows[-1]["round"] + 1))

    def title(self, metric: str, gaps: bool = False) -> str:
        """The statistic for a title, such as `test accuracy (%), last round`; `gaps`: of any of the runs."""
        if self.target is not None:
            known = fact(metric)
            value = f"{known.factor * self.target:g}{' ' + known.unit if known.unit else ''}"
            return f"rounds until {shown(metric)} is {value}"
        of = "evaluation" if gaps else "round"
        last = f"last {of}" if self.last == 1 else f"mean of the last {self.last} {of}s"
        smaller = ", smaller is better" if fact(metric).better == "smaller" else ""
        return f"{with_unit(metric)}, {'best round' if self.best else last}{smaller}"

    @property
    def short(self) -> str:
        """The statistic in short: `last 1`, `best`, `rounds to 0.9`."""
        if self.target is not None:
            return f"rounds to {self.target:g}"
        return "best" if self.best else f"last {self.last}"


def _best(rows: Sequence[Row], metric: str) -> float | None:
    """The value in the round that the run itself chooses: by the median, if clients report the metric."""
    best = chosen_round(rows, metric)
    if best is None:
        return None
    return dict(points(rows, metric)).get(best[0], best[1])


def _measured(rows: Sequence[Row], metric: str) -> list[tuple[int, float]]:
    """(round, value) of each evaluation with a finite value."""
    return [(at, value) for at, value in _evaluations(rows, metric) if value is not None]


def _evaluations(rows: Sequence[Row], metric: str) -> list[tuple[int, float | None]]:
    """(round, value) of each evaluation; None is a value that is not finite."""
    return [(row["round"], row_values.number(row, metric)) for row in rows if row["round"] > 0 and metric in row]


@dataclass(frozen=True)
class TableCell:
    """A method in a setting: mean and sample standard deviation (n - 1) over n of its `of` runs."""

    mean: float
    std: float | None  # None if n < 2
    n: int
    of: int  # more than n if some runs did not reach a target
    chosen: str = ""  # the value of a tuned key, as in `lr=0.05`


@dataclass(frozen=True)
class TableComparison:
    """A table of results; `cells` by (method, setting)."""

    metric: str
    statistic: Statistic
    groups: list[Group]
    cells: dict[tuple[str, str], TableCell]
    remarks: list[str]
    tuned: str | None = None  # the key of which each cell has its own value

    @property
    def methods(self) -> list[str]:
        """The labels of the rows."""
        return list(
            dict.fromkeys(
                run_group.method for run_group in sorted(self.groups, key=lambda run_group: run_group.order[0])
            )
        )

    @property
    def settings(self) -> list[str]:
        """The labels of the columns."""
        return list(
            dict.fromkeys(
                run_group.setting for run_group in sorted(self.groups, key=lambda run_group: run_group.order[1])
            )
        )

    def grid(self) -> Grid:
        """The table for people; the title has the number of runs if it is the same in all cells."""
        counts = {(cell.n, cell.of) for cell in self.cells.values()}
        shared = len(counts) == 1 and self.statistic.target is None
        gaps = any(
            self.statistic.gaps(run.rows, self.metric) for run_group in self.groups for run in run_group.runs
        )
        title = f"{self.statistic.title(self.metric, gaps)}, mean ± standard deviation over seeds"
        title += f" (n = {next(iter(counts))[0]})" if shared else ""
        rows = [
            [method, *(self.written((method, setting), with_n=not shared) for setting in self.settings)]
            for method in self.methods
        ]
        return Grid(title, ["method", *self.settings], rows)

    def written(self, place: tuple[str, str], *, with_n: bool = True) -> str:
        """A cell as text: `97.31 ± 0.25 (n=3)`; for a target, `12.5 ± 2.1 (2 of 3)`."""
        cell = self.cells.get(place)
        if cell is None:
            return NONE
        if self.statistic.target is not None:
            mean = NONE if not cell.n else f"{cell.mean:.1f}" + ("" if cell.std is None else f" ± {cell.std:.1f}")
            return f"{mean} ({cell.n} of {cell.of})"
        notes = [*([cell.chosen] if cell.chosen else []), *([f"n={cell.n}"] if with_n else [])]
        if not cell.n:
            return NONE
        return spread(cell, self.metric) + (f" ({', '.join(notes)})" if notes else "")

    def sheet(self) -> Sheet:
        """The table for programs, a line per cell; accuracies are fractions, as in the records."""
        rows = [
            [*place, self.metric, self.statistic.short, cell.mean if cell.n else None, cell.std, cell.n, cell.of]
            + ([] if self.tuned is None else [cell.chosen])
            for place, cell in self.cells.items()
        ]
        more = [] if self.tuned is None else ["chosen"]
        return Sheet(["method", "setting", "metric", "statistic", "mean", "std", "n", "runs", *more], rows)


def compare_all(
    runs: Sequence[Run],
    metric: str | None = None,
    statistic: Statistic | None = None,
    tune: str | None = None,
    by: str | None = None,
) -> list[TableComparison]:
    """The table of this metric; for None, a table for each metric that decides in some of the runs.

    `tune`, `by`: as for `compare`. Raises ConfigError as `compare` does, if no table can be made; for a target of
    several metrics; and for `by` without `tune`.
    """
    if by is not None and tune is None:
        raise ConfigError(f"by = {by} chooses the value of a key: name it, as in tune = client.lr")
    statistic = statistic or Statistic()
    if metric is not None:
        return [compare(runs, metric, statistic, tune, by)]
    parts = by_headline([run for run in runs if run.completed] or runs)
    if statistic.target is not None and len(parts) > 1:
        raise several_metrics(statistic.target, runs)
    made = [compare(part, name, statistic, tune, by) for name, part in parts.items()]
    unfinished = [_left_out(run) for run in runs if not run.completed]
    return [replace(made[0], remarks=[*unfinished, *made[0].remarks]), *made[1:]]


def several_metrics(target: float, runs: Sequence[Run]) -> ConfigError:
    """The error for one target of runs that are decided by different metrics."""
    counts = ", ".join(f"{name} ({len(part)})" for name, part in by_headline(runs).items())
    return ConfigError(
        f"target = {target:g} is not allowed for runs that are decided by different metrics: {counts}; name only "
        "runs of one metric, or make a table with --metric"
    )


def compare(
    runs: Sequence[Run],
    metric: str,
    statistic: Statistic | None = None,
    tune: str | None = None,
    by: str | None = None,
) -> TableComparison:
    """The table of these runs.

    `tune`: a key, such as `client.lr`, of which each method in each setting has the value with the best mean of
    the metric `by`, such as `local/accuracy`; None: of the metric that is shown.
    Runs that are not completed, lack the metric, or repeat another run are left out, each with a remark.
    Raises ConfigError, with the available metrics, if no run is left; and as `tuned` does.
    """
    statistic = statistic or Statistic()
    kept, remarks = _comparable(runs, metric)
    statistic.check(metric)
    groups, chosen = group(kept), dict[tuple[str, str], str]()
    if tune is not None:
        groups, chosen, more = _tuned(kept, tune, metric, by, statistic)
        remarks += more
    remarks += _without_value(groups, metric, statistic)
    frame = pd.DataFrame(
        [
            {"method": run_group.method, "setting": run_group.setting, "value": statistic.of(run.rows, metric)}
            for run_group in groups
            for run in run_group.runs
        ]
    )
    frame["value"] = frame["value"].astype(float)
    numbers = frame.groupby(["method", "setting"], sort=False)["value"].agg(["mean", "std", "count", "size"])
    cells = {
        place: TableCell(
            float(row["mean"]),
            None if math.isnan(row["std"]) else float(row["std"]),
            *_counts(row),
            chosen.get(place, ""),
        )
        for place, row in numbers.iterrows()
    }
    remarks += _fewer(groups, metric, statistic.last)
    counts_evaluations = statistic.best or statistic.target is not None or statistic.last > 1
    remarks += fairness(groups, metric, counts_evaluations=counts_evaluations)
    return TableComparison(metric, statistic, groups, cells, remarks, tune)


def _without_value(groups: Sequence[Group], metric: str, statistic: Statistic) -> list[str]:
    """A remark on each run that has no number, except one that did not reach a target."""
    remarks = []
    for run in (run for run_group in groups for run in run_group.runs):
        if not _measured(run.rows, metric):
            prefix = "left out: " if statistic.target is None else ""
            remarks.append(f"{prefix}{run.folder} has no {metric} after training")
        elif statistic.target is None and statistic.of(run.rows, metric) is None:
            why = (
                f"no round in which enough clients reported {metric}"
                if statistic.best
                else f"a last {metric} that is not finite"
            )
            remarks.append(f"left out: {run.folder} has {why}")
    return remarks


def _tuned(runs: Sequence[Run], key: str, metric: str, by: str | None, statistic: Statistic) -> Tuned:
    """The runs with the chosen values of the key. With a target, `by` chooses by its last round."""
    if by is None:
        if statistic.target is not None:
            raise ConfigError(f"--tune {key} chooses by the last or best rounds: remove --target, or name --by")
        return tuned(runs, key, metric, lambda run: statistic.of(run.rows, metric))
    if not any(_has(run, by) for run in runs):
        raise _unknown_metric(by, runs)
    choosing = replace(statistic, target=None)
    return tuned(runs, key, by, lambda run: choosing.of(run.rows, by), by)


def _fewer(groups: Sequence[Group], metric: str, last: int) -> list[str]:
    """A remark on each run with fewer evaluations than are averaged."""
    counts = [(run.folder, len(_measured(run.rows, metric))) for run_group in groups for run in run_group.runs]
    return [
        f"{folder} has only {count} evaluations of {metric}, fewer than {last}: its mean is over these"
        for folder, count in counts
        if last > 1 and count < last
    ]


def _counts(row: pd.Series) -> tuple[int, int]:
    return int(row["count"]), int(row["size"])


def _comparable(runs: Sequence[Run], metric: str) -> tuple[list[Run], list[str]]:
    remarks = [_left_out(run) for run in runs if not run.completed]
    completed = [run for run in runs if run.completed]
    if not completed:
        raise ConfigError(f"none of {len(runs)} runs is completed: {'; '.join(remarks) or 'no run was found'}")
    with_metric = [run for run in completed if _has(run, metric)]
    if not with_metric:
        raise _unknown_metric(metric, completed)
    remarks += [f"left out: {run.folder} has no {metric}" for run in completed if run not in with_metric]
    kept, repeated = newest(with_metric)
    return kept, remarks + repeated


def _left_out(run: Run) -> str:
    return f"left out: {run.folder} {run.remark}"


def _unknown_metric(metric: str, runs: Sequence[Run]) -> ConfigError:
    known = sorted({key for run in runs for row in run.rows for key, value in row.items() if is_number(value)})
    close = nearest(metric, known)
    hint = f" Did you mean {' or '.join(repr(name) for name in close)}?" if close else ""
    whole = [key for key in known if key.count("/") == 1]  # without the metrics of single layers
    return ConfigError(f"no completed run has the metric {metric!r}.{hint} Known: {', '.join(whole)}")


def _has(run: Run, metric: str) -> bool:
    return any(is_number(row.get(metric)) for row in run.rows)


# ---------------------------------------------------------------- numbers as text


def number(value: float, metric: str) -> str:
    """A value in the format of a table."""
    known = fact(metric)
    return f"{known.factor * value:.2f}" if known.unit == "%" else f"{known.factor * value:.4g}"


def spread(cell: TableCell, metric: str) -> str:
    """`97.31 ± 0.25`; only the mean if there is no deviation."""
    return number(cell.mean, metric) + ("" if cell.std is None else f" ± {number(cell.std, metric)}")
