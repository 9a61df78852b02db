"""Settings: type, default, range, unit and meaning of a value, in the annotation of a field or parameter.

    def __init__(self, *, beta: Annotated[float, Setting("factor of the step", above=0)] = 0.7): ...

The configuration's schema, the checks, listings and labels, and what a resumed run compares are all derived from
these annotations.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import operator
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal

from .errors import ConfigError

Plain = bool | int | float | str

# Bounds of whole numbers that become loops or sizes: beyond any use, but far below what blocks a machine.
MOST_ROUNDS = 1_000_000
MOST_CLIENTS = 100_000
MOST_STEPS = 1_000_000
"""Mini-batches in a round, and examples in a mini-batch."""
MOST_EPOCHS = 10_000
MOST_EXAMPLES = 100_000_000
MOST_CLASSES = 1_000_000
MOST_THREADS = 1024
MOST_SECONDS = 10_000_000.0
"""116 days; the clock of the operating system refuses waits beyond 292 years."""
REQUIRED: Any = inspect.Parameter.empty
"""The `default` of a field without a default value."""


class Influence(StrEnum):
    """How a key influences a result. It decides the layout of tables, and what a resumed run may change."""

    METHOD = "method"  # part of the compared method: different values are different rows of a table
    SETTING = "setting"  # condition of the comparison: different values are different columns of a table
    CHANCE = "chance"  # changes the numbers, but not what is compared: seed, device, threads
    NONE = "none"  # no influence on a result: a resumed run may change it


@dataclass(frozen=True)
class Setting:
    """The meaning of a value and the allowed values; used in the annotation of a field or parameter.

    Numbers must be finite. `least` and `most` are inclusive bounds, `above` and `below` are exclusive. `extends`:
    a resumed run may change the value although the result depends on it (more rounds, an earlier end). `kind`:
    None means the kind of the key's group. `layers`: the value is a list of patterns, each of which must match the
    name of a linear or convolution module of the run's model. `across`: with this value, the update of one client
    decides what is used of those of others. `path`: the value is a path, or a list of paths, which a run stores as
    absolute ones.
    """

    meaning: str
    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    options: tuple[str, ...] = ()  # those of a Literal need not be repeated
    unit: str = ""
    kind: Influence | None = None
    extends: bool = False
    layers: bool = False
    across: bool = False
    path: bool = False


@dataclass(frozen=True)
class Field:
    """One key: its name, its type without the annotation, its default and its setting."""

    name: str
    type: Any
    default: Any
    setting: Setting

    @property
    def kinds(self) -> tuple[Any, ...]:
        """The types of the value, without `None`."""
        if not _is_union(self.type):
            return (self.type,)
        return tuple(kind for kind in typing.get_args(self.type) if kind is not types.NoneType)

    @property
    def schema_type(self) -> Any:
        """The type in a configuration's schema. OmegaConf has no union of text and list; there `check` decides."""
        return self.type if len(self.kinds) == 1 else Any

    @property
    def is_text(self) -> bool:
        """Whether its values are text, or lists of text, and nothing else."""
        return all(kind is str or typing.get_args(kind) == (str,) for kind in self.kinds)

    @property
    def may_be_none(self) -> bool:
        """Whether `None` (null in a configuration) is allowed."""
        return _is_union(self.type) and types.NoneType in typing.get_args(self.type)

    @property
    def allowed(self) -> str:
        """The allowed values in words, to complete the sentence "KEY must be ..."."""
        words = ", or ".join(_range_words(kind, self.setting) for kind in self.kinds)
        return f"{words}, or null" if self.may_be_none else words

    def check(self, key: str, value: object) -> None:
        """Raise ConfigError, with `key` in the message, for a value of another type or out of range."""
        if value is None and self.may_be_none:
            return
        fits = any(_is_of(value, kind) for kind in self.kinds)
        if value is None or not fits or not _in_range(value, self.setting):
            name = key.rsplit(".", 1)[-1]
            raise ConfigError(f"{key} = {value!r} is not allowed: {name} must be {self.allowed}", key=key)


def fields_of(target: Callable[..., Any]) -> Mapping[str, Field]:
    """The settings of a dataclass, or of the signature of a function or constructor, by name and in order.

    Only fields and parameters whose annotation contains a `Setting` are settings.
    """
    return _fields(target)


@cache
def _fields(target: Callable[..., Any]) -> Mapping[str, Field]:
    if dataclasses.is_dataclass(target):
        hints = typing.get_type_hints(target, include_extras=True)
        defaults = {field.name: _default(field) for field in dataclasses.fields(target)}
    else:
        function = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
        hints = typing.get_type_hints(function, include_extras=True)
        defaults = {name: p.default for name, p in inspect.signature(target).parameters.items()}
    fields = {}
    for name, default in defaults.items():
        setting = next((m for m in getattr(hints.get(name), "__metadata__", ()) if isinstance(m, Setting)), None)
        if setting is not None:
            kind, setting = _with_options(hints[name].__origin__, setting)
            fields[name] = Field(name, kind, default, setting)
    return types.MappingProxyType(fields)


def check(target: Callable[..., Any], values: Mapping[str, Any]) -> None:
    """Check the entries of `values` that are settings of `target`. A constructor calls it with `locals()`.

    Raises ConfigError (a ValueError) for the first value that is not allowed.
    """
    check_fields(fields_of(target).values(), values)


def check_fields(fields: Iterable[Field], values: Mapping[str, Any], path: str = "") -> None:
    """Like `check`, for given fields. `path` is put before the key in the message, as in `strategy.inner.KEY`."""
    for field in fields:
        if field.name in values:
            field.check(f"{path}.{field.name}" if path else field.name, values[field.name])


# ---------------------------------------------------------------- types and ranges


def _with_options(kind: Any, setting: Setting) -> tuple[Any, Setting]:
    """The type and the setting with text in place of `Literal["a", "b"]`, whose values become the options."""
    union = _is_union(kind)
    literals = [
        member for member in (typing.get_args(kind) if union else (kind,)) if typing.get_origin(member) is Literal
    ]
    if not literals:
        return kind, setting
    plain = [str if member in literals else member for member in (typing.get_args(kind) if union else (kind,))]
    (literal,) = literals
    kind = functools.reduce(operator.or_, plain)
    return kind, dataclasses.replace(setting, options=typing.get_args(literal))


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return REQUIRED if field.default is dataclasses.MISSING else field.default


def _is_union(kind: Any) -> bool:
    return typing.get_origin(kind) in (types.UnionType, typing.Union)


def _is_of(value: object, kind: Any) -> bool:
    """Whether a value is of a type. An int is also a float; True and False are not numbers."""
    if typing.get_origin(kind) is list:
        (item,) = typing.get_args(kind)
        return isinstance(value, (list, tuple)) and all(_is_of(entry, item) for entry in value)
    if isinstance(value, bool):
        return kind in (bool, Any)
    if kind is float:  # Real includes numpy's numbers
        return isinstance(value, Real)
    if kind is int:
        return isinstance(value, Integral) and -(2**63) <= int(value) < 2**63  # the range of a ConfigRecord
    kind = typing.get_origin(kind) or kind
    return kind is Any or isinstance(value, kind)


def _in_range(value: Any, setting: Setting) -> bool:
    if isinstance(value, (list, tuple)):  # `options` are those of a plain value
        of_items = dataclasses.replace(setting, options=())
        return all(_in_range(entry, of_items) for entry in value)
    if setting.options and value not in setting.options:
        return False
    if not isinstance(value, Real) or isinstance(value, bool):
        return True
    value = int(value) if isinstance(value, Integral) else float(value)
    return (
        -sys.float_info.max <= value <= sys.float_info.max  # excludes NaN, infinity and whole numbers beyond float
        and (setting.least is None or value >= setting.least)
        and (setting.most is None or value <= setting.most)
        and (setting.above is None or value > setting.above)
        and (setting.below is None or value < setting.below)
    )


def _range_words(kind: Any, setting: Setting) -> str:
    if typing.get_origin(kind) is list:
        (item,) = typing.get_args(kind)
        item_words = _number_words(item, setting) if item in (int, float) else "text"
        return f"a list, each item {item_words}"
    if setting.options:
        *first, last = (repr(option) for option in setting.options)
        return f"{', '.join(first)} or {last}" if first else last
    base = typing.get_origin(kind) or kind
    words = _number_words(base, setting) if base in (int, float) else _PLAIN_WORDS[base]
    return f"{words} ({setting.unit})" if setting.unit else words


_PLAIN_WORDS = {bool: "true or false", str: "text", dict: "a mapping", Any: "any value"}


def _number_words(kind: type, setting: Setting) -> str:
    number = "a whole number" if kind is int else "a finite number"
    low = setting.least if setting.above is None else setting.above
    high = setting.most if setting.below is None else setting.below
    if low is not None and high is not None:
        left, right = ("[" if setting.above is None else "("), ("]" if setting.below is None else ")")
        return f"{number} in {left}{_short(low)}, {_short(high)}{right}"
    if low is not None:
        return f"{number} {'of at least' if setting.above is None else 'greater than'} {_short(low)}"
    if high is not None:
        return f"{number} {'of at most' if setting.below is None else 'less than'} {_short(high)}"
    return number


def _short(value: float) -> str:
    if isinstance(value, int):
        return "2**63 - 1" if value == 2**63 - 1 else str(value)
    return f"{value:g}"
