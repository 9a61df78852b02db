"""A choice of the configuration as plain values, as they travel, and back; a whole one by dotted key.

Knows how dataclasses are written; does not know which there are (`schema.py`).
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

from fedstride.errors import ConfigError

Plain = bool | int | float | str
T = TypeVar("T")


def flatten(prefix: str, config: Any) -> dict[str, Plain]:
    """A flat dataclass as `prefix.key: value`; None is left out, since a ConfigRecord cannot hold it."""
    values = dataclasses.asdict(config)
    return {f"{prefix}.{key}": value for key, value in values.items() if value is not None}


def unflatten(prefix: str, record: Mapping[str, Any], kinds: Mapping[str, type[T]]) -> T:
    """The dataclass that `flatten` took apart; `kinds` maps its `name` to its type.

    Raises ConfigError for a name that is not known here: server and client of different versions.
    """
    name = record.get(f"{prefix}.name")
    if name not in kinds:
        raise ConfigError(
            f"{prefix}.name = {name!r} is not known to this client (known: {', '.join(sorted(kinds))}); "
            "run the same version of fedstride on server and clients"
        )
    kind = kinds[typing.cast(str, name)]
    fields = {f.name for f in dataclasses.fields(typing.cast(Any, kind))}
    start = f"{prefix}."
    values = {k.removeprefix(start): v for k, v in record.items() if k.startswith(start)}
    return kind(**{key: value for key, value in values.items() if key in fields})


def dotted(tree: Any) -> dict[str, Any]:
    """All values of a configuration by dotted key, as overrides name them: `client.lr`, `strategy.inner.beta`."""
    return _dotted(dataclasses.asdict(tree), "")


def _dotted(tree: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in tree.items():
        values |= _dotted(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return values
