"""Trains the runs of a comparison, and measures their models on the same held-out rows of each site."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from fedstride.errors import ConfigError, RunError
from fedstride.tasks import data
from fedstride.tasks.evaluation.comparison import At
from fedstride.tasks.evaluation.per_row import PerRow, joined, per_row
from fedstride.tasks.goals import goal_of
from fedstride.tasks.models.tensors import Examples
from server_app.config.defaults import resolved
from server_app.config.schema import Config

from ..engine.sweep import EndedRun, run_jobs
from ..engine.sweep_combinations import PlannedRun
from ..prediction.model import Model, load
from .comparison_figures import everywhere
from .comparison_folder import ROWS
from .comparison_runs import ALONE, POOLED, ComparedRun, runs_of
from .site_rows import ComparedSite, SiteSplit, as_held_out, folds, sites_of, with_files

RUNS = "runs"


@dataclass(frozen=True)
class PlannedComparison:
    """The sites, what is held out of them, and the runs in the order in which they start."""

    sites: list[ComparedSite]
    splits: list[SiteSplit]
    runs: list[ComparedRun]

    @property
    def columns(self) -> list[str]:
        """The kinds of models, in order; those of the federation come first."""
        return list(dict.fromkeys(run.column for run in self.runs))

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """Each federation against a site alone, and against pooled."""
        together = [column for column in self.columns if column not in (ALONE, POOLED)]
        return [(column, other) for column in together for other in (ALONE, POOLED)]

    def counts(self) -> list[tuple[str, int, int]]:
        """Of each site its name, how many rows it has, and how many of them are measured."""
        return [
            (site.name, len(site.y), sum(len(split.held[place]) for split in self.splits))
            for place, site in enumerate(self.sites)
        ]


def plan(configs: Mapping[str, Config], seeds: Sequence[int], out: Path, fold_count: int = 0) -> PlannedComparison:
    """The runs for these federations, by name; their rows are copied below `out`. Nothing is trained yet.

    All have the same task, clients and partition. `fold_count`: of a cross-validation; 0: what the run itself
    holds out. Raises ConfigError or DataError.
    """
    rows = out / ROWS
    rows.mkdir(parents=True, mode=0o700)
    divided = with_files(next(iter(configs.values())), rows)
    prepared = {name: _resolved(replace(config, partition=divided.partition)) for name, config in configs.items()}
    first = next(iter(prepared.values()))
    sites = sites_of(first, data.load(first.task).spec)
    splits = folds(sites, fold_count, rows) if fold_count else [as_held_out(first, sites, rows)]
    return PlannedComparison(sites, splits, runs_of(prepared, sites, splits, seeds, out / RUNS))


def train(
    planned: PlannedComparison,
    jobs: Sequence[PlannedRun],
    at_once: int,
    on_end: Callable[[ComparedRun, EndedRun], None],
) -> None:
    """Train those of its runs that are not complete, `jobs`. Raises RunError, with the reason, if one fails."""
    by_folder = {run.folder: run for run in planned.runs}
    for ended in run_jobs(jobs, at_once=at_once, on_start=lambda job: None) if jobs else ():
        run = by_folder[ended.job.folder]
        on_end(run, ended)
        if ended.state != "completed":
            raise RunError(f"{run.folder.name} {ended.state}: {ended.reason}")


def measure(planned: PlannedComparison) -> list[At]:
    """What was found at each site, and then over all of them."""
    by_site: list[dict[str, dict[int, list[PerRow]]]] = [
        {column: {} for column in planned.columns} for _ in planned.sites
    ]
    for run in planned.runs:
        model, split = load(run.folder, parts=run.config.parts), planned.splits[run.split]
        for place in range(len(planned.sites)) if run.site is None else [run.site]:
            rows = rows_of(model, planned.sites[place], split.held[place])
            by_site[place][run.column].setdefault(run.config.seed, []).append(rows)
    by_seed = [
        {column: [joined(parts) for parts in seeds.values()] for column, seeds in columns.items()}
        for columns in by_site
    ]
    return everywhere([site.name for site in planned.sites], by_seed, planned.pairs)


def rows_of(model: Model, site: ComparedSite, held: np.ndarray) -> PerRow:
    """What a model gives on these rows of a site, for the figures of the run that has trained it.

    Raises ConfigError if none of them is one number.
    """
    goal = goal_of(model.spec, model.config.task.loss, model.config.task.metrics)
    rows = Examples(site.x, site.y, model.spec, device=torch.device("cpu"), members=held, goal=goal)
    figures = per_row(model.network, rows)
    if not figures.names:
        raise ConfigError(
            f"task.metrics = {list(goal.figures)}: each is several numbers, and a comparison needs a figure that "
            "is one number"
        )
    return figures


def _resolved(config: Config) -> Config:
    return resolved(config, data.load(config.task))
