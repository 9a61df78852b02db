"""Overrides as text: Hydra's grammar, the papers' way of naming wrappers, Flower's run config.

Knows how a request is written; does not know which keys exist (`config.py`).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from fedstride.errors import ConfigError, unknown

GROUPS = ("experiment", "strategy", "client", "objective", "task", "model", "partition", "privacy")
"""The choices: one folder of `conf/` each."""

RUN_KEYS = (*GROUPS, "rounds", "clients", "seed", "out", "resume")
"""The keys of Flower's run config that become overrides of the same name; empty means not given."""

WRAPPERS = frozenset({"fedlws", "two_d_lrd"})
"""Strategies that hold another one as `inner`."""


def overrides_of(run_config: Mapping[str, Any]) -> list[str]:
    """The Hydra overrides in Flower's flat run config: the named keys first, then `overrides`.

    Raises ConfigError for a key that we do not declare or an `overrides` that is no string.
    """
    allowed = (*RUN_KEYS, "overrides")
    for key in run_config:
        if key not in allowed:
            raise unknown("run-config key", key, allowed)
    given = [f"{key}={quote(run_config[key])}" for key in RUN_KEYS if run_config.get(key, "") not in ("", None)]
    extra = run_config.get("overrides", "")
    if not isinstance(extra, str):
        raise ConfigError(
            f"overrides = {extra!r} is not allowed: it must be a string of Hydra overrides, "
            'as in overrides="strategy.beta=0.05 client.lr=0.02"'
        )
    try:
        return given + shlex.split(extra)
    except ValueError as error:
        raise ConfigError(f"overrides = {extra!r} cannot be read: {error}") from error


_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\+[A-Za-z0-9_]+)*")
_WORDS = {"null", "true", "false", "nan", "inf"}


def quote(value: object) -> str:
    """A value as Hydra's grammar takes it: text that is no plain name is quoted, so that it stays text."""
    if value is None:
        return "null"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(quote, value)) + "]"
    text = str(value)
    if isinstance(value, bool):
        return text.lower()
    if isinstance(value, (int, float)) or (_BARE.fullmatch(text) and text.lower() not in _WORDS):
        return text
    # Only backslashes before a quote are escaped in Hydra's grammar.
    return "'" + re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), text) + "'"


def expand_wrappers(overrides: Sequence[str]) -> list[str]:
    """Write `strategy=base+a+b` as b around a around base."""
    expanded: list[str] = []
    for text in overrides:
        key, _, value = text.partition("=")
        if key != "strategy" or "+" not in value:
            expanded.append(text)
            continue
        base, *wrappers = value.split("+")
        for wrapper in wrappers:
            if wrapper not in WRAPPERS:
                raise ConfigError(
                    f"strategy = {value!r} is not allowed: {wrapper!r} cannot be put around another strategy; "
                    f"after a '+' stands one of {', '.join(sorted(WRAPPERS))}"
                )
        group = "strategy"
        for depth, name in enumerate(reversed([base, *wrappers])):
            expanded.append(f"{group}={name}")
            group = "strategy@strategy" + ".inner" * (depth + 1)
    return expanded


def read(text: str, expected: str) -> Override:
    """One override, of one value or a sweep of several; raises ConfigError with what was expected."""
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise ConfigError(f"{text!r} is not an override: expected {expected}") from error


def parse(overrides: Sequence[str]) -> list[Override]:
    """Read overrides of a single run; raises ConfigError for what is none."""
    parsed = []
    for text in overrides:
        override = read(text, "key=value, as in strategy=fedlws or client.lr=0.02")
        if override.is_sweep_override():
            raise ConfigError(f"{text!r} names several values; a single run takes one")
        if override.is_add() or override.is_force_add() or override.is_delete():
            raise ConfigError(f"{text!r} is not allowed: keys can be set, neither added nor removed")
        parsed.append(override)
    return parsed
