"""Keys and values of Python as the overrides that the command takes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedstride.errors import ConfigError
from server_app.config.grammar import quote
from server_app.config.methods import METHOD
from server_app.config.schema import GROUPS

Value = str | float | bool | os.PathLike[str] | np.generic | np.ndarray | None | Sequence["Value"]
"""A value of a key: text, a number, a truth value, a path, None, or several of them."""

ALLOWED = "text, a number, True, False, None, a path, or a list of these"


def merged(settings: Mapping[str, Value] | None, keywords: Mapping[str, Value]) -> dict[str, Value]:
    """All keys, in the order in which they are given. Raises ConfigError for a key that is given twice."""
    if settings is not None and not isinstance(settings, Mapping):
        raise ConfigError(
            f"the keys must be in a dict or given as keywords, not in a {type(settings).__name__}: write "
            '{"client.lr": 0.03}, or rounds=20'
        )
    values = dict(settings or {})
    for key in values:
        if not isinstance(key, str):
            raise ConfigError(f"the key {key!r} is not text: write it as in {{'client.lr': 0.03}}")
    for key, value in keywords.items():
        if key in values:
            raise ConfigError(
                f"{key} is given twice, in the dict and as a keyword: leave out one of them", key=key
            )
        values[key] = value
    return values


def single(given: Mapping[str, Value]) -> list[str]:
    """The overrides of one run, in which a list is the value of a key that takes several."""
    for key, value in given.items():
        if _is_several(value) and (key == METHOD or key.partition("@")[0] in GROUPS):
            raise several(key)
    return [f"{key}={_text(key, value)}" for key, value in given.items()]


def several(key: str) -> ConfigError:
    """The error for a list where one run takes one value."""
    return ConfigError(f"{key} has several values: fedstride.sweep makes a run with each of them", key=key)


def swept(given: Mapping[str, Value]) -> list[str]:
    """The overrides of a sweep, in which a list has the values of several runs; a tuple is one value."""
    return [f"{key}={','.join(_texts(key, value))}" for key, value in given.items()]


def _texts(key: str, value: Value) -> list[str]:
    if not _is_several(value) or isinstance(value, tuple):
        return [_text(key, value)]
    texts = [_text(key, member) for member in _items(value)]
    if not texts:
        raise ConfigError(f"{key} = [] is not allowed: a list in a sweep has at least one value", key=key)
    return texts


def _is_several(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _items(value: Any) -> list[Any]:
    return list(value.tolist() if isinstance(value, np.ndarray) else value)


def _text(key: str, value: Value) -> str:
    return quote(_plain(key, value))


def _plain(key: str, value: Any) -> Any:
    """The value with the types of the grammar. Raises ConfigError for any other value."""
    if _is_several(value):
        return [_plain(key, member) for member in _items(value)]
    if isinstance(value, (np.generic, np.ndarray)):
        value = value.item()
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, Mapping):
        inner = next(iter(value), "KEY")
        raise ConfigError(
            f"{key} cannot be a dict: write each of its keys in full, as in {{'{key}.{inner}': ...}}", key=key
        )
    raise ConfigError(f"{key} is a {type(value).__name__}: it must be {ALLOWED}", key=key)
