"""The tree of a configuration: made from the chosen parts, then each value is set once, in order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedstride.errors import ConfigError, unknown
from fedstride.settings import Field, fields_of
from strategies.replies.screening_settings import Screening

from .grammar import as_text, as_value
from .overrides import Override, hint
from .schema import TABLES, Config

PLAIN = "fedavg"
"""The strategy inside a wrapper if none is chosen."""


def tree_of(places: Mapping[str, str]) -> DictConfig:
    """The defaults of the parts that are chosen at these places: `strategy`, `strategy.inner`, `client`, ..."""
    tree: DictConfig = OmegaConf.structured(Config(**{group: _part(group, group, places) for group in TABLES}))
    return tree


def _part(group: str, place: str, places: Mapping[str, str]) -> Any:
    name, table = places.get(place, PLAIN), TABLES[group]
    if name not in table:
        raise unknown(group, name, table)
    inner = {"inner": _part(group, f"{place}.inner", places)} if table.wraps(name) else {}
    return table.config(name)(**inner)


def put(tree: DictConfig, override: Override) -> None:
    """Set one value. Raises ConfigError for an unknown key, and for a value of another type."""
    value = value_for(tree, override.key, override.value)
    items = value if isinstance(value, list) else []
    if any(isinstance(item, (list, dict)) for item in items) and (shown := hint(override)):
        raise ConfigError(f"{override.text!r} is not allowed: each item must be text{shown}")
    try:
        OmegaConf.update(tree, override.key, value, merge=True)
    except OmegaConfBaseException as error:
        raise explain(error, override) from error


def value_for(tree: DictConfig, key: str, read: Any) -> Any:
    """What was read for this key: as it was typed if the setting is text, else the value."""
    setting = setting_at(tree, key)
    return as_text(read) if setting is not None and setting.is_text else as_value(read)


def setting_at(tree: DictConfig, key: str) -> Field | None:
    """The setting with this key; None if there is none."""
    group, _, name = key.partition(".")
    if group == "screening":
        return fields_of(Screening).get(name)
    if group not in TABLES:
        return fields_of(Config).get(key)
    node = tree[group]
    while name.startswith("inner.") and node is not None:
        node, name = node.get("inner"), name.partition(".")[2]
    return None if node is None else TABLES[group].all_fields(node.name).get(name)


def explain(error: Exception, override: Override) -> ConfigError:
    """Reduce OmegaConf's error to one line: the cause, and the override that caused it."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    text = " ".join(str(cause).strip().splitlines()[: 2 if str(cause).partition("\n")[0].endswith(":") else 1])
    if override.text.partition("=")[0] == getattr(cause, "full_key", None):
        shown = hint(override)
        return ConfigError(f"{override.text!r} is not allowed: {text.rstrip('.') if shown else text}{shown}")
    return ConfigError(f"the configuration cannot be composed: {text}")
