"""The runs of a comparison: which there are, and what they have in common.

All have the same network, the same rounds, and the same client settings. A site alone takes as many steps as in
the federation. Pooled takes as many as all sites together: each row is used as often. Alone and pooled are trained
by stochastic gradient descent, since there is nothing to aggregate. Statistics of columns that a task computes
before training are those of the rows that a run has: of the site alone, of all sites, and of all training rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from client_app.registry import OBJECTIVES
from server_app.config.attacks import ATTACKS
from server_app.config.calibrations import CALIBRATIONS
from server_app.config.compose import to_yaml
from server_app.config.schema import Config
from server_app.records.run_folder import folder_name
from strategies.registry import PRIVACY, STRATEGIES

from ..engine.fedavg_comparison import local_sgd
from ..engine.sweep_combinations import PlannedRun
from .site_rows import ComparedSite, SiteSplit, of_files

ALONE, POOLED = "alone", "pooled"


@dataclass(frozen=True)
class ComparedRun:
    """A run of a comparison: of a `column`, with a split; `site`: the place of the one that is alone."""

    column: str
    split: int
    config: Config
    site: int | None = None

    @property
    def folder(self) -> Path:
        """Its folder."""
        return Path(self.config.out or "") / str(self.config.name)

    @property
    def job(self) -> PlannedRun:
        """As a run of a sweep."""
        return PlannedRun((f"name={self.config.name}",), to_yaml(self.config))


def runs_of(
    configs: Mapping[str, Config],
    sites: Sequence[ComparedSite],
    splits: Sequence[SiteSplit],
    seeds: Sequence[int],
    out: Path,
) -> list[ComparedRun]:
    """All runs, with folders in `out`; `configs`: the federations, by the names of their columns."""
    one = _by_one(next(iter(configs.values())))
    runs = []
    for seed in seeds:
        for number, split in enumerate(splits):
            of = _Of(sites, number, f"seed{seed}" if len(splits) == 1 else f"fold{number + 1}-seed{seed}", out)
            seeded = {name: replace(config, seed=seed, holdout=split.holdout) for name, config in configs.items()}
            by_one = replace(one, seed=seed, holdout=split.holdout)
            runs += [of.run(name, config, split.files) for name, config in seeded.items()]
            runs += [of.run(ALONE, by_one, [file], place) for place, file in enumerate(split.files)]
            runs.append(of.run(POOLED, replace(by_one, holdout=0.0), [split.pooled]))
    return runs


@dataclass(frozen=True)
class _Of:
    """What the runs of one split and one seed have in common; `end`: of their names."""

    sites: Sequence[ComparedSite]
    split: int
    end: str
    out: Path

    def run(self, column: str, config: Config, files: Sequence[str], site: int | None = None) -> ComparedRun:
        name = column if site is None else f"{column}-{self.sites[site].name}"
        named = folder_name(f"{name}-{self.end}")
        its = replace(config, partition=of_files(files), out=str(self.out), name=named)
        return ComparedRun(column, self.split, its, site)


def _by_one(config: Config) -> Config:
    """The same training by one client: plain, without what concerns several clients, messages or the server."""
    return replace(
        config,
        strategy=STRATEGIES.config("fedavg")(),
        client=local_sgd(config),
        objective=OBJECTIVES.config("plain")(),
        privacy=PRIVACY.config("none")(),
        attack=ATTACKS.config("none")(),
        calibration=CALIBRATIONS.config("none")(),
        screening=type(config.screening)(),
        clients=1,
        min_clients=None,
        cohort=None,
        fraction=1.0,
        best_quorum=None,
        nodes=None,
    )
