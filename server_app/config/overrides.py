"""Reads and writes overrides as text: Hydra's grammar, `strategy=BASE+WRAPPER`, and Flower's run config."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

from fedstride import signed, wire
from fedstride.errors import ConfigError, unknown
from fedstride.settings import fields_of
from fedstride.signatures import RUN_CONFIG
from strategies.parts import STRATEGIES

from .schema import GROUPS, Config

NO_SETTINGS = (wire.SUBMISSION, RUN_CONFIG, signed.RUN_CONFIG)
"""The keys of a run's configuration that others read: who looks for the run, and the nodes."""


def overrides_of(run_config: Mapping[str, Any]) -> list[str]:
    """The Hydra overrides in Flower's flat run config: first the single keys, then those in `overrides`.

    The app's pyproject.toml declares the keys, and Flower rejects others. An empty value counts as not given.
    Raises ConfigError for an unknown key, or if `overrides` is not a string.
    """
    allowed = [*GROUPS, *(key for key in fields_of(Config) if key not in ("experiment", "presets")), "overrides"]
    run_config = {key: value for key, value in run_config.items() if key not in NO_SETTINGS}
    for key in run_config:
        if key not in allowed:
            raise unknown("run-config key", key, allowed)
    named = sorted((key for key in run_config if key != "overrides"), key=allowed.index)
    given = [f"{key}={quote(run_config[key])}" for key in named if run_config[key] not in ("", None)]
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
    """A value in Hydra's grammar. Text that is not a plain name is quoted, so that Hydra reads it as text."""
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
    """Replace `strategy=BASE+A+B` by Hydra overrides in which B wraps A and A wraps BASE.

    Raises ConfigError if A or B is not a wrapper.
    """
    expanded: list[str] = []
    for text in overrides:
        key, _, value = text.partition("=")
        if key != "strategy" or "+" not in value:
            expanded.append(text)
            continue
        base, *around = value.split("+")
        for name in around:
            if name in STRATEGIES and STRATEGIES.wraps(name):
                continue
            wrappers = sorted(name for name in STRATEGIES if STRATEGIES.wraps(name))
            raise ConfigError(
                f"strategy = {value!r} is not allowed: {name!r} is not a wrapper; "
                f"after '+' write one of {', '.join(wrappers)}"
            )
        group = "strategy"
        for depth, name in enumerate(reversed([base, *around])):
            expanded.append(f"{group}={name}")
            group = "strategy@strategy" + ".inner" * (depth + 1)
    return expanded


def nodes_as_text(overrides: Sequence[str]) -> list[str]:
    """Quote the value of `nodes=a,b-*`, in which Hydra would see a sweep, unless the user has quoted it."""
    return [
        f"nodes={quote(value)}"
        if key == "nodes" and value and value not in _WORDS and value[0] not in "'\""
        else text
        for text in overrides
        for key, _, value in [text.partition("=")]
    ]


def parts_in(overrides: Sequence[str]) -> str | None:
    """The FILE of the last override `parts=FILE`, or None if there is none or it is empty."""
    named = [text for text in overrides if text.partition("=")[0] == "parts"]
    value = parse(named)[-1].value() if named else None
    return str(value) if value else None


def with_parts(overrides: Sequence[str], path: str | None) -> list[str]:
    """The overrides with `parts=PATH` instead of their own `parts=...`; for None, without any `parts=...`."""
    others = [text for text in overrides if text.partition("=")[0] != "parts"]
    return others if path is None else [*others, f"parts={quote(path)}"]


QUOTED = """; an item of a list with signs such as = needs quotation marks, as in 'columns=[age,"sex=a|b"]'"""


def read(text: str, expected: str) -> Override:
    """Parse one override, of one value or of several (a sweep). Raises ConfigError with what was expected."""
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        hint = QUOTED if "[" in text else ""
        raise ConfigError(f"{text!r} is not an override: expected {expected}{hint}") from error


def parse(overrides: Sequence[str]) -> list[Override]:
    """Parse the overrides of a single run. Raises ConfigError for invalid overrides and for sweeps."""
    parsed = []
    for text in overrides:
        override = read(text, "key=value, as in strategy=fedlws or client.lr=0.02")
        if override.is_sweep_override():
            raise ConfigError(f"{text!r} has several values, but a single run needs exactly one")
        if override.is_add() or override.is_force_add() or override.is_delete():
            raise ConfigError(f"{text!r} is not allowed: keys can be set, but not added or removed")
        parsed.append(override)
    return parsed


def chooses_a_rule(chosen: Sequence[Override]) -> bool:
    """Whether the outermost strategy that is chosen has no strategy inside."""
    names = [str(override.value()) for override in chosen if override.key_or_group == "strategy"]
    return bool(names) and names[-1] in STRATEGIES and not STRATEGIES.wraps(names[-1])
