"""A rule's state as the flat dict that a checkpoint stores, and back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from fedstride.arrays.named import host
from fedstride.arrays.on_device import Device, placed
from fedstride.errors import RunError, require

S = TypeVar("S")


class Stateless(NamedTuple):
    """The state of a rule without state."""


STORABLE = "a number, a text, None, an array, or a dict of arrays by name"


def first_state(kind: type[S], who: str) -> S:
    """The state before round 1. Raises ConfigError for a field without a default that can be stored."""
    fields, defaults = getattr(kind, "_fields", None), getattr(kind, "_field_defaults", {})
    require(fields is not None, f"{who}.State", kind.__name__, "a NamedTuple")
    without = [field for field in fields or () if field not in defaults]
    allowed = "a default for each field, its value before round 1"
    require(not without, f"{who}.State", f"no default for {', '.join(without)}", allowed)
    state = kind()
    for field, value in state._asdict().items():  # type: ignore[attr-defined]
        require(not _fault(value), f"{who}.State.{field}", _fault(value), STORABLE)
    return state


def check_state(state: Any, who: str) -> None:
    """Raises RunError, in one line, if this is no state, or if a field has a value that cannot be stored."""
    if not hasattr(state, "_asdict"):
        found = type(state).__name__
        raise RunError(f"{who} returns a state that is a {found}; it must be its State, a NamedTuple")
    _check(state._asdict(), who)
    for field in _texts_for_numbers(type(state), state._asdict()):
        raise RunError(f"{who}: {field!r} of its state is a text, and its annotation says a number")


NUMBERS = ("int", "float", "bool", int, float, bool)
"""Annotations of a number, as they are and as texts."""


def _texts_for_numbers(kind: type, values: Mapping[str, Any]) -> list[str]:
    """The fields that are texts, and numbers by their annotation."""
    annotations = getattr(kind, "__annotations__", {})
    texts = [field for field, value in values.items() if isinstance(value, str)]
    # A NamedTuple of a module with postponed annotations has them as ForwardRef.
    named = {field: getattr(annotations.get(field), "__forward_arg__", annotations.get(field)) for field in texts}
    return [field for field in texts if named[field] in NUMBERS]


def _check(values: Mapping[str, Any], who: str) -> None:
    for field, value in values.items():
        if fault := _fault(value):
            raise RunError(f"{who}: {field!r} of its state is {fault}, which cannot be stored; use {STORABLE}")


def _fault(value: Any) -> str:
    """What a value is that cannot be stored, in words; empty if it can be."""
    if isinstance(value, Mapping):
        wrong = next(
            (name for name, array in value.items() if not (isinstance(name, str) and _is_array(array))), None
        )
        return "" if wrong is None else f"a {type(value).__name__} with {wrong!r}: {_kind(value[wrong])}"
    plain = value is None or isinstance(value, (bool, int, float, str))
    return "" if plain or _is_array(value) else _kind(value)


def _is_array(value: Any) -> bool:
    dtype = getattr(value, "dtype", None)
    return dtype is not None and hasattr(value, "shape") and getattr(dtype, "kind", "f") not in "OUSMmc"


def _kind(value: Any) -> str:
    dtype = getattr(value, "dtype", "")
    return f"{type(value).__name__} {dtype}".strip()


def pack(state: Any, who: str = "a rule") -> dict[str, Any]:
    """A state (a NamedTuple) as `field: number or array` and `field/name: array`.

    A field that is None as its default has no entry; a dict without arrays has the entry `field/`. Raises RunError
    for what cannot be stored.
    """
    check_state(state, who)
    defaults: Mapping[str, Any] = type(state)._field_defaults
    values = state._asdict().items()
    return flat(
        {field: value for field, value in values if value is not None or defaults.get(field, 0) is not None}
    )


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values that can be stored, as `field: number, text, None or array` and `field/name: array`."""
    entries: dict[str, Any] = {}
    for field, value in values.items():
        if isinstance(value, Mapping):
            entries |= {f"{field}/{name}": host(array) for name, array in value.items()}
            entries |= {} if value else {f"{field}/": ""}
        elif isinstance(value, np.generic):
            entries[field] = value.item()
        else:
            entries[field] = host(value) if _is_array(value) else value
    return entries


def unpack(kind: type[S], flat: Mapping[str, Any]) -> S:
    """The state that `pack` turned into a dict, each value with its type.

    Raises KeyError if one is missing, and TypeError for a text where the annotation says a number.
    """
    defaults: Mapping[str, Any] = kind._field_defaults  # type: ignore[attr-defined]
    stored = nested(flat, kind._fields)  # type: ignore[attr-defined]
    optional = {field: None for field, default in defaults.items() if default is None}
    values = optional | stored
    for field in _texts_for_numbers(kind, values):
        raise TypeError(f"{field} is a text, and must be a number")
    return kind(**{field: values[field] for field in defaults})


def nested(flat: Mapping[str, Any], fields: Iterable[str]) -> dict[str, Any]:
    """These fields of what `flat` made, where they have an entry."""
    values: dict[str, Any] = {}
    for field in fields:
        if field in flat:
            values[field] = flat[field]
        elif arrays := below(flat, field):
            values[field] = {} if list(arrays) == [""] else arrays
    return values


def check_values(values: Any, who: str) -> None:
    """Raises RunError, in one line, if the result of a `state_dict()` of a user cannot be stored."""
    if not isinstance(values, Mapping) or not all(isinstance(key, str) and "/" not in key for key in values):
        found = sorted(map(repr, values))[:3] if isinstance(values, Mapping) else type(values).__name__
        raise RunError(
            f"{who}.state_dict() returns {found}; it must return a dict, with texts without '/' as keys"
        )
    _check(values, f"{who}.state_dict()")


def moved(state: S, device: Device) -> S:
    """The state with all its arrays on this device; see `placed`."""
    fields = {
        field: placed(value, device) if isinstance(value, dict) else value
        for field, value in state._asdict().items()  # type: ignore[attr-defined]
    }
    return type(state)(**fields)


LEARNT = "learnt"


def pack_learnt(learnt: Mapping[str, float]) -> dict[str, float]:
    """The reference lengths that the screening learnt, as `learnt/NAME: length`."""
    return {f"{LEARNT}/{name}": length for name, length in learnt.items()}


def unpack_learnt(flat: Mapping[str, Any]) -> dict[str, float]:
    """What `pack_learnt` turned into a dict."""
    return {name: float(length) for name, length in below(flat, LEARNT).items()}


def below(flat: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The entries of a flat state below `prefix/`, without it."""
    start = f"{prefix}/"
    return {key.removeprefix(start): value for key, value in flat.items() if key.startswith(start)}
