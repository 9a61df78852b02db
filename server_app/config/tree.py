"""The tree of settings that Hydra composes from `conf/`, the tables of parts, and overrides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cached_property, partial
from typing import Any

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigNode, ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedstride.errors import ConfigError
from fedstride.parts import Part

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


_REGISTERED: dict[tuple[str, str], Part] = {}
"""The parts that Hydra has, by group and name. Registering a further one makes `_COMPOSED` old."""


def _register() -> None:
    """Register every part with Hydra: its typed schema, and a choice of the same name that uses the schema."""
    _store("schema", "config", lambda: Config)
    for group, table in TABLES.items():
        for name in table:
            if _REGISTERED.get((group, name)) != table[name]:
                _REGISTERED[group, name] = table[name]
                _COMPOSED.clear()
                _store(f"schema/{group}", name, partial(table.config, name))
                _store(group, name, partial(_choice, group, name))


def _choice(group: str, name: str) -> dict[str, Any]:
    """What Hydra composes when this part is chosen."""
    defaults: list[Any] = [f"/schema/{group}/{name}@_here_"]
    if TABLES[group].wraps(name):
        defaults.append({f"/{group}@inner": "fedavg"})
    return {"defaults": defaults, "name": name}


def _store(group: str, name: str, content: Callable[[], Any]) -> None:
    """As `ConfigStore.store`, but parts that are not chosen are neither imported nor made into nodes."""
    place = ConfigStore.instance().repo
    for part in group.split("/"):
        place = place.setdefault(part, {})
    place[f"{name}.yaml"] = _OnDemand(name, group, content)


class _OnDemand(ConfigNode):
    """An entry of Hydra's store whose content is made when Hydra reads it."""

    def __init__(self, name: str, group: str, content: Callable[[], Any]) -> None:
        self.name, self.group, self.package, self.provider = f"{name}.yaml", group, None, None
        self._content = content

    def __deepcopy__(self, memo: Any) -> _OnDemand:
        """This object, which never changes: Hydra copies its whole store to restore it later."""
        return self

    # Hydra declares a field. A cached property is read in the same way, and makes the value at the first reading.
    @cached_property
    def node(self) -> DictConfig:  # type: ignore[override]
        """The content as Hydra's node."""
        node: DictConfig = OmegaConf.structured(self._content())
        return node
