"""A whole comparison, from its overrides to its page; the command and Python make it in this way."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedstride.errors import ConfigError, counted, require
from fedstride.processes.cores import cores
from fedstride.tasks.evaluation.comparison import At
from server_app.build import build_strategy
from server_app.config.compose import compose
from server_app.config.keys import label
from server_app.config.schema import Config
from server_app.config.variables import with_variables
from server_app.records.run_folder import runs_dir

from ..engine.begun_runs import going_on, split
from ..engine.sweep import EndedRun
from ..engine.sweep_combinations import expand
from . import page, shared_training
from .compare import PlannedComparison, measure, plan, train
from .comparison_folder import opened
from .comparison_runs import ComparedRun


@dataclass(frozen=True)
class ComparisonRequest:
    """What is compared: the overrides as they are typed, the federations that they are, and how often."""

    given: Sequence[str]
    configs: dict[str, Config]
    seeds: Sequence[int]
    folds: int = 0

    @property
    def command(self) -> str:
        """The command that makes the same comparison."""
        options = ["--seeds", ",".join(map(str, self.seeds)), *(["--folds", str(self.folds)] * bool(self.folds))]
        return shlex.join(["fedstride", "compare", *self.given, *options])


@dataclass(frozen=True)
class WholeComparison:
    """What was found at each site and over all, and the path of the page about it."""

    measured: list[At]
    page: Path
    seeds: Sequence[int]

    @property
    def main(self) -> str:
        """The figure that decides: the first one."""
        return next(iter(self.measured[0].enough))

    @property
    def notes(self) -> list[str]:
        """What a reader must know of this table."""
        return page.notes(self.measured, self.main, self.seeds)


def asked(given: Sequence[str], seeds: Sequence[int], folds: int = 0) -> ComparisonRequest:
    """The federations of these overrides, by what they differ in. Raises ConfigError."""
    rows = expand(given)
    differ = [column for column in range(len(given)) if len({row[column].text for row in rows}) > 1]
    configs: dict[str, Config] = {}
    for row in rows:
        config = compose(with_variables([value.override for value in row], os.environ))
        build_strategy(config)
        values = [row[column].text for column in differ]
        named = values[0].partition("=")[2] if len(values) == 1 else " ".join(values) or label(config)
        if named in configs:
            raise ConfigError(f"the comparison has {named} twice: remove one")
        configs[named] = config
    shared_training.check(configs.values())
    return ComparisonRequest(given, configs, seeds, folds)


def make(
    wanted: ComparisonRequest,
    out: Path | None,
    jobs: int | None,
    *,
    named: str,
    resume: bool,
    begins: Callable[[PlannedComparison, Path, int], None],
    on_end: Callable[[PlannedComparison, ComparedRun, EndedRun], None],
) -> WholeComparison:
    """Train, measure, and write the page, into a folder that is new or empty; copies of rows never stay in it.

    `out`: the folder, called `named` in an error; by default a new one below the folder of runs. `resume`: go on
    in the folder of one that was ended; complete runs are kept, those begun resumed. `begins` gets the plan, the
    folder and how many runs are complete, `on_end` each run that has ended. Raises ConfigError, DataError or
    RunError.
    """
    require(not resume or out is not None, named, out, "the folder of the comparison that goes on")
    folder = (out or runs_dir(Config()) / f"compare-{time.strftime('%Y%m%d-%H%M%S')}").expanduser().absolute()
    with opened(folder, wanted.command, named, resume=resume) as keep:
        planned = plan(wanted.configs, wanted.seeds, folder, wanted.folds)
        keep(planned.sites)
        complete, others = split([run.job for run in planned.runs], f"choose another {named}")
        begins(planned, folder, len(complete))
        at_once = min(jobs or cores(), len(others))
        train(planned, [*map(going_on, others)], at_once, lambda run, ended: on_end(planned, run, ended))
        measured = measure(planned)
    what = _what(list(wanted.configs.values()), wanted.folds)
    path = page.write(folder, measured, command=wanted.command, seeds=wanted.seeds, what=what)
    return WholeComparison(measured, path, wanted.seeds)


def _what(configs: Sequence[Config], folds: int) -> list[str]:
    """What the runs have in common, in words."""
    config = configs[0]
    in_words = dict.fromkeys(line for each in configs for line in shared_training.in_words(each))
    steps, passes = shared_training.by_one(config).client.local_steps, config.client.local_epochs
    local = f"{steps} steps" if steps else f"{passes} {'pass' if passes == 1 else 'passes'} over the rows"
    cross = [
        f"each row is measured once, by the models of the fold of {folds} that holds it out; for figures of "
        "ranks, scores of different folds are ranked together"
    ]
    return [
        *(cross if folds else []),
        f"{counted(config.rounds, 'round')}, {local} a round, batches of {config.client.batch_size}, "
        f"rate {config.client.lr:g}",
        *in_words,
        "alone and pooled are trained by stochastic gradient descent, with the rate of the federation",
    ]
