"""The tree of settings that Hydra composes from `conf/`, the tables of parts, and overrides."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedstride.errors import ConfigError

from . import presets
from .conf import conf_dir
from .schema import TABLES, Config

_COMPOSED: dict[tuple[str, ...], DictConfig] = {}
"""What `composed` has found, by the files and the choices: the runs of a sweep have few different ones."""

MOST_COMPOSED = 512


def composed(chosen: Sequence[Override]) -> DictConfig:
    """The tree of these choices alone, read-only; composed once. Raises ConfigError with the cause in one line."""
    files = sorted(conf_dir().rglob("*.yaml"))
    stamps = (f"{file} {file.stat().st_mtime_ns}" for file in files)  # a notebook's user may edit one
    key = (*stamps, *(str(override.input_line) for override in chosen))
    if key not in _COMPOSED:
        if len(_COMPOSED) == MOST_COMPOSED:
            del _COMPOSED[next(iter(_COMPOSED))]
        lines = [str(override.input_line) for override in chosen]
        try:
            tree = hydra_compose("config", lines)
        except (HydraException, OmegaConfBaseException) as error:
            raise explain(error, lines) from error
        OmegaConf.set_readonly(tree, True)
        _COMPOSED[key] = tree
    return _COMPOSED[key]


def changed(tree: DictConfig, values: Sequence[Override]) -> DictConfig:
    """A copy of the tree with these values, later ones last, as Hydra sets them.

    Hydra would compose the whole tree again, which takes about a second. Raises ConfigError with the cause in one
    line.
    """
    copy = deepcopy(tree)
    OmegaConf.set_readonly(copy, False)
    for override in values:
        try:
            OmegaConf.update(copy, str(override.key_or_group), override.value(), merge=True)
        except OmegaConfBaseException as error:
            raise explain(error, [str(override.input_line)]) from error
    return copy


def explain(error: Exception, lines: Sequence[str]) -> ConfigError:
    """Reduce Hydra's error to one line: the cause, and the override that caused it."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = " ".join(str(cause).strip().splitlines()[: 2 if str(cause).partition("\n")[0].endswith(":") else 1])
    key = getattr(cause, "full_key", None)
    culprit = next((line for line in reversed(lines) if key and line.partition("=")[0] == key), None)
    if culprit is not None:
        return ConfigError(f"{culprit!r} is not allowed: {text}")
    return ConfigError(f"the configuration cannot be composed: {text}")


class Hydra:
    """Initialises Hydra with our `conf/`, in any working directory. Afterwards the caller's Hydra is restored."""

    def __enter__(self) -> None:
        _register()
        self.before = GlobalHydra.instance().hydra
        GlobalHydra.instance().clear()
        self.context = initialize_config_dir(str(conf_dir()), version_base="1.3")
        self.context.__enter__()

    def __exit__(self, *details: Any) -> None:
        self.context.__exit__(*details)
        presets.forget()
        GlobalHydra.instance().hydra = self.before


_REGISTERED: dict[tuple[str, str], type] = {}
"""The schemas that Hydra has, by group and name: to register all again takes longer than to compose."""


def _register() -> None:
    """Register every part with Hydra: its typed schema, and a choice of the same name that uses the schema."""
    store = ConfigStore.instance()
    store.store("config", Config, group="schema")
    for group, table in TABLES.items():
        for name in table:
            kind = table.config(name)
            if _REGISTERED.get((group, name)) is kind:
                continue
            _REGISTERED[group, name] = kind
            _COMPOSED.clear()
            store.store(name, kind, group=f"schema/{group}")
            defaults: list[Any] = [f"/schema/{group}/{name}@_here_"]
            if table.wraps(name):
                defaults.append({f"/{group}@inner": "fedavg"})
            store.store(name, {"defaults": defaults, "name": name}, group=group)
