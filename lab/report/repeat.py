"""The command that repeats a run, derived from its configuration.

Knows how overrides compose; does not know records. Only what differs from the experiment's own
composition is named, and what the command composes to is compared with the run before it is shown.
"""

from __future__ import annotations

import shlex
from functools import lru_cache
from typing import Any

from fedstride.errors import ConfigError
from server_app.config.compose import compose
from server_app.config.overrides import quote
from server_app.config.schema import TABLES, Config, keys, label

from ..engine.beside import NAME
from ..results.runs import Run

DEFAULT = Config().experiment
NOT_REPEATED = frozenset({"experiment", "out", "name", "resume", "presets"})
"""Where a run goes and what an experiment holds in store: no part of what is repeated."""


def overrides_for(config: Config) -> list[str]:
    """The fewest Hydra overrides that compose to this configuration.

    Raises ConfigError where none do: the experiment is gone, or the choices cannot be combined any more.
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
    found = [*chosen, *values]
    if _wanted(compose(found)) != wanted:
        raise ConfigError("this version composes another configuration")
    return found


def command(run: Run) -> str:
    """The `fedstride run` line that repeats a run; a sentence that says why there is none."""
    try:
        if run.config.parts is not None:  # composing would execute the file, and a report is of anybody's runs
            raise ConfigError(f"it has parts of its own, in {run.config.parts}")
        overrides = overrides_for(run.config)
    except ConfigError as error:
        return (
            f"# no command of this version repeats the run ({error}); its configuration: {run.folder}/config.yaml"
        )
    alone = [] if (run.folder / NAME).is_dir() else ["--no-compare"]
    return shlex.join(["fedstride", "run", *alone, *overrides])


@lru_cache(maxsize=64)
def _composed(*overrides: str) -> Config:
    return compose(overrides)


def _wanted(config: Config) -> dict[str, Any]:
    """What a run's command has to name, by dotted key."""
    return {key.path: key.value for key in keys(config) if key.path not in NOT_REPEATED}
