"""Compares a paper's table with our runs: the paper's number, ours, the difference, and other settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedstride.figures.metrics import fact
from server_app.config.presets.vocabulary import task_of

from ..results.formats import Grid, Sheet
from ..results.grouping import plain
from ..results.run_folders import Run
from ..results.tables import NONE, Statistic, TableCell, compare, spread
from . import PaperColumn, PaperRow, PaperTable, experiment_of
from .matching import PARTS_OF, PLAIN, calibration_of, deviations, is_line, misfits

METRICS = {"top1_accuracy": "test/accuracy", "aggregation_time": "seconds/aggregate"}
"""Our names of the papers' metrics, for those that a run measures."""


def metric_of(table: PaperTable, line: PaperRow) -> str:
    """Our metric of a row: of the model itself, or of its calibrated copy (`ccvr/accuracy`)."""
    metric, calibration = METRICS[table.metric], calibration_of(line)
    return metric if calibration == PLAIN else metric.replace("test/", f"{calibration}/")


@dataclass(frozen=True)
class PaperPair:
    """A cell of the paper and our result; `paper` is in the paper's unit, `ours` in the metric's."""

    column: str
    method: str  # our label, with variant and setting if there are several
    paper: float
    paper_std: float | None
    ours: TableCell
    statistic: Statistic
    metric: str


@dataclass(frozen=True)
class SideBySide:
    """A paper's table and its cells for which there are matching runs."""

    table: PaperTable
    pairs: list[PaperPair]
    remarks: list[str]

    def grid(self) -> Grid:
        """Both numbers and the difference; the complete table of the paper if no run matches."""
        if not self.pairs:
            return printed(self.table)
        rows = [
            [
                pair.column,
                pair.method,
                _printed(self.table, pair.paper, pair.paper_std),
                f"{spread(pair.ours, pair.metric)} (n={pair.ours.n})",
                _signed(self._difference(pair), self.table.unit),
                pair.statistic.short,
            ]
            for pair in self.pairs
        ]
        title = f"{self.table.name}: {self.table.caption} ({self.table.unit}); ours: mean ± deviation over seeds"
        return Grid(title, ["column", "method", "paper", "ours", "difference", "our evaluations"], rows, words=2)

    def sheet(self) -> Sheet:
        """The table for programs: a line per cell, in the paper's unit."""
        if not self.pairs:
            grid = printed(self.table)
            return Sheet(grid.head, [[None if cell == NONE else cell for cell in row] for row in grid.rows])
        rows = [
            [
                self.table.name,
                pair.column,
                pair.method,
                pair.paper,
                pair.paper_std,
                fact(pair.metric).factor * pair.ours.mean,
                None if pair.ours.std is None else fact(pair.metric).factor * pair.ours.std,
                pair.ours.n,
                round(self._difference(pair), 6),
                pair.statistic.short,
            ]
            for pair in self.pairs
        ]
        head = "table column method paper paper_std ours ours_std n difference statistic"
        return Sheet(head.split(), rows)

    def _difference(self, pair: PaperPair) -> float:
        return fact(pair.metric).factor * pair.ours.mean - pair.paper


def _signed(difference: float, unit: str) -> str:
    """With two decimals of a percentage, and with more if they would not show the sign."""
    if unit != "percent" or 0 < abs(difference) < 0.005:
        return f"{difference:+.2g}" if unit == "percent" else f"{difference:+.3g}"
    return f"{difference:+.2f}"


def side_by_side(table: PaperTable, runs: Sequence[Run], statistic: Statistic | None = None) -> SideBySide:
    """The cells of the table for which there are matching runs; `statistic`: that of the paper if None.

    The remarks list the runs left out, with the reason, and how matching runs differ from the paper.
    """
    remarks = [f"left out: {run.folder} {run.remark}" for run in runs if not run.completed]
    runs = [run for run in runs if run.completed]
    if table.metric not in METRICS:
        known = " and ".join(METRICS)
        return SideBySide(
            table, [], [*remarks, f"{table.name} is about {table.metric}, and only {known} are compared"]
        )
    pairs: list[PaperPair] = []
    used: set[str] = set()
    for number, column in enumerate(table.columns):
        fitting = [run for run in runs if not misfits(table, column, run.config)]
        for line in table.rows:
            matched = [run for run in fitting if is_line(table, column, line, run)]
            if matched and line.values[number] is not None:
                new_pairs, more = _pairs(table, number, line, matched, statistic)
                pairs, remarks = pairs + new_pairs, remarks + more
                used |= {str(run.folder) for run in matched}
    remarks += subsets([run for run in runs if str(run.folder) in used])
    rest = [run for run in runs if str(run.folder) not in used]
    remarks += _unmatched(table, rest)
    if not pairs:
        remarks += ["no run matches; only the paper's numbers are shown. Columns of the table:", *_columns(table)]
    return SideBySide(table, pairs, remarks)


def _pairs(
    table: PaperTable, number: int, line: PaperRow, runs: Sequence[Run], statistic: Statistic | None
) -> tuple[list[PaperPair], list[str]]:
    """A pair with this cell of the paper for each variant and setting of our runs."""
    column = table.columns[number]
    statistic = statistic or _of_paper(table, column, runs)
    metric, calibration = metric_of(table, line), calibration_of(line)
    ours = compare(runs, metric, statistic)
    pairs, remarks = [], list(ours.remarks)
    for run_group in ours.groups:
        cell = ours.cells[run_group.method, run_group.setting]
        method = run_group.method if calibration == PLAIN else f"{run_group.method}+{calibration}"
        name = f"{method}, {run_group.setting}" if len(ours.settings) > 1 else method
        std = None if line.std is None else line.std[number]
        pairs.append(PaperPair(column.key, name, line.values[number], std, cell, statistic, metric))
        other = deviations(table, column, line, run_group.config)
        if other:
            remarks.append(f"{column.key}, {name} differs from the paper: {', '.join(other)}")
    return pairs, remarks


def subsets(runs: Sequence[Run]) -> list[str]:
    """A line for each task of which runs had only a part of the published examples."""
    return sorted({f"{run.config.task.name} is {run.subset}" for run in runs if run.subset})


def _of_paper(table: PaperTable, column: PaperColumn, runs: Sequence[Run]) -> Statistic:
    if table.metric == "aggregation_time":
        return Statistic(last=max(run.config.rounds for run in runs))
    return statistic_of(experiment_of(table.name, column.key))


def statistic_of(settings: Mapping[str, Any] | None) -> Statistic:
    """The number of a run that the paper prints for such an experiment; the last round if it does not say."""
    evaluation = (settings or {}).get("evaluation", {})
    if evaluation.get("statistic") == "best":
        return Statistic(best=True)
    return Statistic(last=evaluation.get("rounds", 1) if evaluation.get("over") == "last_rounds" else 1)


# ---------------------------------------------------------------- what does not match


def _unmatched(table: PaperTable, runs: Sequence[Run]) -> list[str]:
    """For the runs without a matching column: how the closest column differs."""
    reasons = Counter(_closest(table, run) for run in runs)
    return [f"{count} run{'s' * (count > 1)} not matched: {reason}" for reason, count in reasons.items()]


def _closest(table: PaperTable, run: Run) -> str:
    columns = [column for column in table.columns if "aggregate" not in column.fields]
    lacks = {column.key: misfits(table, column, run.config) for column in columns}
    task = PARTS_OF.get(run.config.task.name, (run.config.task.name, ""))[0]
    column = min(columns, key=lambda c: (len(lacks[c.key]), task_of(c.fields.get("dataset", "")) != task))
    if lacks[column.key]:
        return f"{'; '.join(lacks[column.key])} (closest column: {column.key})"
    return f"{column.key} has no row for {run.method} with the run's parameters"


def _columns(table: PaperTable) -> list[str]:
    return [f"  {column.key}: {_words(column)}" for column in table.columns]


def _words(column: PaperColumn) -> str:
    words = []
    for key, value in column.fields.items():
        if key == "partition":
            rest = [f"{k}={plain(v)}" for k, v in value.items() if k != "scheme"]
            words.append(" ".join([value["scheme"], *rest]))
        else:
            words.append(str(value) if key in ("dataset", "model") else f"{key}={plain(value)}")
    return ", ".join(words)


# ---------------------------------------------------------------- as printed


def printed(table: PaperTable) -> Grid:
    """The paper's table without our results."""
    rows = []
    for line in table.rows:
        deviation = line.std or (None,) * len(line.values)
        cells = [_printed(table, value, std) for value, std in zip(line.values, deviation, strict=True)]
        rows.append([f"{line.method} {line.variant}" if line.variant else line.method, *cells])
    unit = "" if table.unit == "as_named" else f" ({table.unit})"
    title = f"{table.name}: {table.caption}{unit}, as printed"
    return Grid(title, ["method", *(column.key for column in table.columns)], rows)


def _printed(table: PaperTable, value: Any, std: float | None) -> str:
    """A number with the decimals that the paper prints in this table."""
    if value is None:
        return NONE
    if isinstance(value, list):  # the shape of a layer
        return " x ".join(map(str, value))
    if table.unit == "as_named":
        return plain(value)
    decimals = [len(str(v).partition(".")[2]) for line in table.rows for v in line.values if isinstance(v, float)]
    digits = max(decimals, default=0)
    return f"{value:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")
