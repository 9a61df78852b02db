"""The runs of a comparison: which there are, and what they have in common.

All have the same network, the same rounds, and the same client settings. A site alone takes as many steps as in
the federation. Pooled uses each row as often; with `client.local_steps`, it takes as many steps as all sites
together. Alone and pooled are trained by stochastic gradient descent, since there is nothing to aggregate.
Statistics of columns that a task computes before training are those of the rows that a run has: of the site alone,
of all sites, and of all training rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedstride.errors import require
from server_app.config.compose import to_yaml
from server_app.config.schema import Config
from server_app.records.run_folder import folder_name

from ..engine.sweep_combinations import PlannedRun
from .shared_training import by_one, pooled
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
    """All runs, with folders in `out`; `configs`: the federations, by the names of their columns.

    Raises ConfigError if one has the name of the other columns.
    """
    for name in (ALONE, POOLED):
        require(name not in configs, "strategy", name, "another name: a comparison has a column of this name")
    one = by_one(next(iter(configs.values())))
    of_all = pooled(one, len(sites))
    runs = []
    for seed in seeds:
        for number, split in enumerate(splits):
            of = _Of(sites, number, f"seed{seed}" if len(splits) == 1 else f"fold{number + 1}-seed{seed}", out)
            seeded = {name: replace(config, seed=seed, holdout=split.holdout) for name, config in configs.items()}
            alone = replace(one, seed=seed, holdout=split.holdout)
            together = replace(of_all, seed=seed, holdout=0.0)
            runs += [of.run(name, config, split.files) for name, config in seeded.items()]
            runs += [of.run(ALONE, alone, [file], place) for place, file in enumerate(split.files)]
            runs.append(of.run(POOLED, together, [split.pooled]))
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
