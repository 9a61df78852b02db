"""Reads an experiment: which parts it chooses, and which values it sets. It is a file in `conf/experiment`, or a
preset of a paper.

A file has Hydra's form: a list `defaults` with entries `override /GROUP: NAME` and names of other experiments that
it builds on, and below it the values.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedstride.errors import ConfigError, unknown

from .conf import conf_dir
from .grammar import Typed
from .overrides import Override, written
from .presets import computed_settings, vocabulary
from .schema import TABLES


@dataclass(frozen=True)
class Experiment:
    """The choices by place (`strategy`, `strategy.inner`, `client`, ...), and the values as in a file."""

    choices: Mapping[str, str]
    layers: tuple[Mapping[str, Any], ...]  # later ones count

    @property
    def values(self) -> Iterator[Override]:
        """Each value that it sets, whatever is chosen."""
        return (override for layer in self.layers for override in _values(layer))

    def presets_of(self, tree: DictConfig) -> Iterator[Override]:
        """Its settings for the chosen parts, as in `presets.strategy.fedlws.beta: 0.03`.

        `presets.strategy.feddyn.rounds: 200` sets a key of the run while that part is chosen.
        Raises ConfigError for a group or a name that does not exist.
        """
        return (override for layer in self.layers for override in _presets(layer.get("presets") or {}, tree))


def names() -> list[str]:
    """The files in conf/experiment, then the papers' experiments."""
    return [*sorted(path.stem for path in (conf_dir() / "experiment").glob("*.yaml")), *computed_settings.names()]


def about(name: str) -> str:
    """The one-line description: the first comment of a file, or the setting of a paper's experiment."""
    if "/" in name:
        return computed_settings.preset(name).about
    for line in (conf_dir() / "experiment" / f"{name}.yaml").read_text().splitlines():
        if line.startswith("# ") and not line.startswith("# @"):
            return line[2:].strip()
    return ""


def root() -> dict[str, str]:
    """The default choice of each group."""
    return {str(group): str(name) for group, name in _yaml(conf_dir() / "config.yaml").items()}


def experiment(name: str) -> Experiment:
    """The experiment with this name. Raises ConfigError for a file that cannot be read."""
    if "/" in name:
        made = computed_settings.preset(name)
        return Experiment(computed_settings.choices_of(made), (computed_settings.settings_of(made),))
    choices: dict[str, str] = {}
    layers: list[Mapping[str, Any]] = []
    _read(name, choices, layers)
    return Experiment(choices, tuple(layers))


def _read(name: str, choices: dict[str, str], layers: list[Mapping[str, Any]], *above: str) -> None:
    file = conf_dir() / "experiment" / f"{name}.yaml"
    if name in above:
        raise ConfigError(f"{file} builds on itself: correct `defaults` in it")
    content = _yaml(file)
    defaults = content.pop("defaults", None) or []
    if not isinstance(defaults, list):
        raise ConfigError(f"`defaults` in {file} is not a list: write '- override /GROUP: NAME'")
    file_choices: dict[str, str] = {}
    for entry in defaults:
        if isinstance(entry, str):
            if entry != "_self_":
                _read(entry, choices, layers, name, *above)
            continue
        file_choices |= dict(_choice(file, str(key), str(value)) for key, value in entry.items())
    choices |= file_choices
    layers.append(content)


_OVERRIDE = re.compile(r"override /(\w+)(?:@((?:\w|\.)+))?")


def _choice(file: Path, key: str, value: str) -> tuple[str, str]:
    match = _OVERRIDE.fullmatch(key)
    if match is None:
        raise ConfigError(
            f"{key!r} in `defaults` of {file} is not allowed: write 'override /GROUP: NAME', as in "
            "'override /strategy: fedavg'"
        )
    return match[2] or match[1], value


def _yaml(path: Path) -> dict[str, Any]:
    """The content of a file. Numbers and truth values are `Typed`, with their text in the file."""
    try:
        values = OmegaConf.to_container(OmegaConf.load(path))
        texts = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    except (OSError, yaml.YAMLError, OmegaConfBaseException, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is not an experiment: it must be a mapping")
    content: dict[str, Any] = _with_texts(values, texts)
    return content


def _with_texts(value: Any, text: Any) -> Any:
    if isinstance(value, dict):
        texts = text if isinstance(text, dict) else {}  # values that an alias brings in have no text
        return {key: _with_texts(part, texts.get(key)) for key, part in value.items()}
    if isinstance(value, list):
        return [_with_texts(part, its) for part, its in zip(value, text or [None] * len(value), strict=True)]
    keeps = isinstance(value, (bool, int, float)) and isinstance(text, str)
    return Typed(value, text) if keeps else value


# ---------------------------------------------------------------- as single values


def _values(layer: Mapping[str, Any], above: str = "") -> Iterator[Override]:
    for key, value in layer.items():
        path = f"{above}{key}"
        is_section = path in (*TABLES, "screening") or (above and key == "inner")
        if is_section and isinstance(value, Mapping):
            yield from _values(value, f"{path}.")
        elif value is not None or path != "presets":
            yield written(path, value)


def _presets(presets: Mapping[str, Any], tree: DictConfig) -> Iterator[Override]:
    for group, by_name in presets.items():
        if group not in TABLES:
            raise unknown("group in presets", str(group), TABLES)
        for name in by_name or {}:
            if name not in TABLES[group]:
                raise unknown(f"{group} in presets", str(name), TABLES[group])
        path, node = group, tree[group]
        while node is not None:
            for key, value in ((by_name or {}).get(node.name) or {}).items():
                is_own = key in TABLES[group].all_fields(node.name)
                yield written(key if key in vocabulary.OF_THE_RUN and not is_own else f"{path}.{key}", value)
            node, path = node.get("inner"), f"{path}.inner"
