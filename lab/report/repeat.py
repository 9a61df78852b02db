"""Derives the command that repeats a run from its configuration.

The command contains only the differences from the experiment. Before it is shown, it is composed again and
compared with the run's configuration.
"""

from __future__ import annotations

import shlex
from functools import lru_cache
from pathlib import Path
from typing import Any

from fedstride.errors import ConfigError
from server_app.config.compose import compose
from server_app.config.grammar import quote
from server_app.config.keys import keys, label
from server_app.config.schema import TABLES, Config

from ..engine.fedavg_comparison import NAME
from ..results.run_folders import Run

DEFAULT = Config().experiment
NOT_REPEATED = frozenset({"experiment", "out", "name", "resume", "presets"})
"""Keys that are not repeated: the place of a run, and the presets of an experiment."""


def overrides_for(config: Config) -> list[str]:
    """The fewest Hydra overrides that compose to this configuration.

    Raises ConfigError if there are none: the experiment no longer exists, or the choices are not compatible.
    """
    chosen = [] if config.experiment == DEFAULT else [f"experiment={config.experiment}"]
    base = _composed(*chosen)
    for group in TABLES:
        name, before = (
            (label(config), label(base))
            if group == "strategy"
            else (getattr(config, group).name, getattr(base, group).name)
        )
        if name != before:
            chosen.append(f"{group}={name}")
    before, wanted = _wanted(_composed(*chosen)), _wanted(config)
    values = [f"{key}={quote(value)}" for key, value in wanted.items() if before.get(key) != value]
    overrides = [*chosen, *values]
    if _wanted(compose(overrides)) != wanted:
        raise ConfigError("in this version, the same overrides give another configuration")
    return overrides


def command(run: Run) -> str:
    """The `fedstride run` command that repeats a run, or a comment with the reason why there is none."""
    try:
        if run.config.parts is not None:  # composing executes the file, and the runs may be another user's
            raise ConfigError(f"it uses user-defined parts, in {Path(run.config.parts).name}")
        overrides = overrides_for(run.config)
    except ConfigError as error:
        place = f"{run.folder}/config.yaml"
        return f"# this version has no command that repeats the run ({error}); its configuration: {place}"
    options = [] if (run.folder / NAME).is_dir() else ["--no-compare"]
    return shlex.join(["fedstride", "run", *options, *overrides])


@lru_cache(maxsize=64)
def _composed(*overrides: str) -> Config:
    return compose(overrides)


def _wanted(config: Config) -> dict[str, Any]:
    """The values that a command has to reproduce, by dotted key."""
    return {key.path: key.value for key in keys(config) if key.path not in NOT_REPEATED}
