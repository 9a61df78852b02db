"""Overrides, each read once: from a command, from Flower's run config, and `strategy=BASE+WRAPPER`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.errors import HydraException

from fedstride.errors import ConfigError, unknown
from fedstride.messages import signed_runs, wire
from fedstride.messages.app_signatures import RUN_CONFIG
from fedstride.plain_numbers import is_number
from fedstride.settings import Field, fields_of
from strategies.registry import STRATEGIES

from . import grammar
from .grammar import Read, Typed, as_typed_text, quote
from .schema import GROUPS, TABLES, Config
from .variables import check_references

NO_SETTINGS = (wire.SUBMISSION, wire.CHECK, RUN_CONFIG, signed_runs.RUN_CONFIG)
"""The keys of a run's configuration that others read: who looks for the run, and the nodes."""

SINGLE = "key=value, as in strategy=fedlws or client.lr=0.02"


@dataclass(frozen=True)
class Override:
    """One key and its value, as it was read."""

    text: str  # as typed; read again, in another process, it has the same value
    key: str  # rounds, strategy.inner.beta, or a group
    value: Any  # numbers and truth values are `Typed`
    package: str | None = None  # of a choice after @: strategy.inner

    @property
    def place(self) -> str:
        """Where a choice belongs: its group, or the place inside a wrapper."""
        return self.package or self.key

    @property
    def name(self) -> str:
        """The value as the name of a choice or a file."""
        return str(grammar.as_text(self.value))


def written(key: str, value: Any) -> Override:
    """An override with this value, which nobody typed."""
    return Override(f"{key}={quote(value)}", key, value)


def parse(overrides: Sequence[str | Override]) -> list[Override]:
    """The overrides of a single run; those that were read already stay as they are.

    Raises ConfigError for text that is not an override, and for several values.
    """
    return [override if isinstance(override, Override) else _single(override) for override in overrides]


def _single(text: str, parsed: Read | None = None) -> Override:
    key, _, value = text.partition("=")
    if key == "nodes" and _is_bare(value):  # a list with commas, in which Hydra would see a sweep
        return Override(text, key, value)
    parsed = parsed or _read(text, SINGLE)
    if parsed.is_sweep:
        one = f"; as text: {_quoted(text)}" if _fields(parsed.key) else ""
        raise ConfigError(f"{text!r} has several values, but a single run needs exactly one{one}")
    _check_changes(text, parsed)
    return Override(text, parsed.key, parsed.value, parsed.package)


def _check_changes(text: str, parsed: Read) -> None:
    if not parsed.changes:
        raise ConfigError(f"{text!r} is not allowed: keys can be set, but not added or removed")


def _is_bare(value: str) -> bool:
    return value not in ("", "null") and value[0] not in "'\""


def values_of(text: str) -> list[Override]:
    """The overrides that a text of one or several values stands for, as in `seed=1,2,3`.

    Raises ConfigError for text that is not an override, and for a sweep that does not list its values.
    """
    parsed = _read(text, "key=value or key=value,value as in seed=1,2,3")
    if not parsed.is_sweep:
        return [_single(text, parsed)]
    if parsed.items is None:
        raise ConfigError(f"{text!r} is not allowed: list the values, as in strategy.beta=0.05,0.1")
    _check_changes(text, parsed)
    key = text.partition("=")[0]
    return [Override(f"{key}={item.text}", parsed.key, item.value, parsed.package) for item in parsed.items]


# ---------------------------------------------------------------- what cannot be read

_KEY = re.compile(r"(\+{0,2}|~)[A-Za-z_$][\w.$-]*(@[\w.]*)?", re.ASCII)


def _read(text: str, expected: str) -> Read:
    try:
        return grammar.read(text)
    except HydraException as error:
        if not _KEY.fullmatch(text.partition("=")[0]) or "=" not in text:
            raise ConfigError(f"{text!r} is not an override: expected {expected}") from error
        check_references(text)
        raise ConfigError(
            f"{text!r} cannot be read: a value with such signs needs quotation marks, as in {_quoted(text)}"
        ) from error


def _quoted(text: str) -> str:
    """The override as it is typed in a shell, so that its value is the text (or the texts of a list) as typed."""
    key, _, value = text.partition("=")
    in_brackets = value.startswith("[") and value.endswith("]")
    fields = _fields(key)
    listed = any(kind is not str for field in fields for kind in field.kinds) if fields else in_brackets
    only = all(kind is not str for field in fields for kind in field.kinds) if fields else False
    return as_typed_text(key, value, listed=only or (listed and in_brackets))


def _fields(key: str) -> list[Field]:
    """The settings with this key that are text, or lists of text; of a group, those of all its parts."""
    group, _, name = key.partition(".")
    fields = [fields_of(Config).get(key)]
    if group in TABLES:
        name = name.rpartition(".")[2]
        fields = [TABLES[group].all_fields(part).get(name) for part in TABLES[group]]
    return [field for field in fields if field is not None and field.is_text]


def hint(override: Override) -> str:
    """What to write if the value is meant as text, or as a list of texts, to complete an error message."""
    return f"; as text: {_quoted(override.text)}" if _fields(override.key) else ""


# ---------------------------------------------------------------- Flower's run config


def overrides_of(run_config: Mapping[str, Any]) -> list[Override]:
    """The overrides in Flower's flat run config: first the single keys, then those in `overrides`.

    The app's pyproject.toml declares the keys, and Flower rejects others. An empty value counts as not given.
    Raises ConfigError for an unknown key, for a number in place of text, of which TOML does not keep how it was
    typed, and if `overrides` is not a string.
    """
    allowed = [
        *GROUPS,
        *(key for key in fields_of(Config) if key not in ("experiment", "presets")),
        wire.OVERRIDES,
    ]
    run_config = {key: value for key, value in run_config.items() if key not in NO_SETTINGS}
    for key in run_config:
        if key not in allowed:
            raise unknown("run-config key", key, allowed)
    named = sorted((key for key in run_config if key != wire.OVERRIDES), key=allowed.index)
    given = [_from_toml(key, run_config[key]) for key in named if run_config[key] not in ("", None)]
    extra = run_config.get(wire.OVERRIDES, "")
    if not isinstance(extra, str):
        raise ConfigError(
            f"overrides = {extra!r} is not allowed: it must be a string of Hydra overrides, "
            'as in overrides="strategy.beta=0.05 client.lr=0.02"'
        )
    try:
        return [*given, *parse(shlex.split(extra))]
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"overrides = {extra!r} cannot be read: {error}") from error


def _from_toml(key: str, value: bool | int | float | str) -> Override:
    if is_number(value) and _fields(key):
        raise ConfigError(
            f"{key} = {value!r} is a number, but {key} is text: write it in quotation marks, as in "
            f'{key}="{value!r}"'
        )
    return written(key, value if isinstance(value, str) else Typed(value, quote(value)))


# ---------------------------------------------------------------- wrappers, and the file of the user's parts


def expand_wrappers(overrides: Sequence[Override]) -> list[Override]:
    """Replace `strategy=BASE+A+B` by choices in which B wraps A and A wraps BASE.

    Raises ConfigError if A or B is not a wrapper.
    """
    expanded: list[Override] = []
    for given in overrides:
        if given.place != "strategy" or "+" not in given.name:
            expanded.append(given)
            continue
        base, *around = given.name.split("+")
        for name in around:
            if name in STRATEGIES and STRATEGIES.wraps(name):
                continue
            wrappers = sorted(name for name in STRATEGIES if STRATEGIES.wraps(name))
            raise ConfigError(
                f"strategy = {given.name!r} is not allowed: {name!r} is not a wrapper; "
                f"after '+' write one of {', '.join(wrappers)}"
            )
        place = "strategy"
        for name in reversed([base, *around]):
            expanded.append(Override(given.text, "strategy", name, None if place == "strategy" else place))
            place += ".inner"
    return expanded


def parts_in(overrides: Sequence[Override]) -> str | None:
    """The FILE of the last override `parts=FILE`, or None if there is none or it is empty."""
    named = [given for given in overrides if given.key == "parts"]
    return named[-1].name if named and named[-1].value else None


def with_parts(overrides: Sequence[Override], path: str | None) -> list[Override]:
    """The overrides with `parts=PATH` instead of their own `parts=...`; for None, without any `parts=...`."""
    others = [given for given in overrides if given.key != "parts"]
    return others if path is None else [*others, written("parts", path)]


def chooses_a_rule(chosen: Sequence[Override]) -> bool:
    """Whether the outermost strategy that is chosen has no strategy inside."""
    names = [given.name for given in chosen if given.place == "strategy"]
    return bool(names) and names[-1] in STRATEGIES and not STRATEGIES.wraps(names[-1])
