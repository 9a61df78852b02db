"""Reads a configuration: its keys with their values, the names of its parts, and what its method is called."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from fedstride.settings import Field, Influence, fields_of
from strategies.replies.screening_settings import Screening

from .schema import TABLES, Config


def chain(spec: Any) -> Iterator[Any]:
    """The configuration of a strategy and of the strategies that it wraps, the outermost first."""
    while spec is not None:
        yield spec
        spec = getattr(spec, "inner", None)


def counting_mini_batches(strategy: Any) -> list[Any]:
    """The configurations of those of a strategy's parts that count mini-batches in place of epochs (2D-LRD)."""
    return [spec for spec in chain(strategy) if hasattr(spec, "local_steps")]


def mini_batches(config: Config) -> int | None:
    """How many mini-batches a client trains in a round; None for whole epochs."""
    counted: list[int] = [spec.local_steps for spec in counting_mini_batches(config.strategy)]
    return counted[0] if counted else config.client.local_steps


# ---------------------------------------------------------------- every key of a configuration


@dataclass(frozen=True)
class Key:
    """One key of a configuration, with its path, its kind and its value."""

    path: str  # as in an override: strategy.inner.beta
    group: str  # "" for a key of the run itself
    part: str  # the name of the chosen part; "" for a key of the run itself
    field: Field
    kind: Influence
    value: Any

    @property
    def may_change(self) -> bool:
        """Whether a resumed run may have another value."""
        return may_change(self.field, self.kind)


def may_change(setting: Field, kind: Influence) -> bool:
    """Whether a resumed run may have another value of this setting."""
    return kind is Influence.NONE or setting.setting.extends


def keys(config: Config) -> list[Key]:
    """All keys of a configuration except the names of chosen parts: the run's own keys, then group by group."""
    entries = [_key(f, "", "", Influence.SETTING, config, "") for f in fields_of(Config).values()]
    entries += [
        _key(f, "", "", Influence.SETTING, config.screening, "screening") for f in fields_of(Screening).values()
    ]
    for group, table in TABLES.items():
        path = group
        for spec in chain(getattr(config, group)):
            for f in table.fields_in(spec).values():
                entries.append(_key(f, group, spec.name, table.kind_of(f), spec, path))
            path += ".inner"
    return entries


def _key(f: Field, group: str, part: str, kind: Influence, holder: Any, path: str) -> Key:
    dotted = f"{path}.{f.name}" if path else f.name
    return Key(dotted, group, part, f, f.setting.kind or kind, getattr(holder, f.name))


def names(config: Config) -> dict[str, str]:
    """The names of the chosen parts, by group. A wrapped strategy has the key `strategy.inner`, and so on."""
    chosen = {group: getattr(config, group).name for group in TABLES}
    path = "strategy"
    for spec in chain(config.strategy):
        chosen[path] = spec.name
        path += ".inner"
    return chosen


def by_key(config: Config) -> dict[str, Any]:
    """The complete configuration by dotted key: the names of the chosen parts, and all settings."""
    chosen = {f"{path}.name": name for path, name in names(config).items()}
    return chosen | {key.path: key.value for key in keys(config)}


def label(config: Config) -> str:
    """The strategy as in the papers' tables: the base first, then its wrappers, joined with `+`."""
    return "+".join(reversed([spec.name for spec in chain(config.strategy)]))
