"""A rule's state as the flat dict that a checkpoint stores, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

from fedstride.arrays.named import host
from fedstride.arrays.on_device import Device, placed

S = TypeVar("S")


class Stateless(NamedTuple):
    """The state of a rule without state."""


def pack(state: Any) -> dict[str, Any]:
    """A state (a NamedTuple) as `field: number` and `field/name: array`; a field that is None has no entry."""
    flat: dict[str, Any] = {}
    for field, value in state._asdict().items():
        if isinstance(value, Mapping):
            flat |= {f"{field}/{name}": host(array) for name, array in value.items()}
        elif value is not None:
            flat[field] = value
    return flat


def unpack(kind: type[S], flat: Mapping[str, Any]) -> S:
    """The state that `pack` turned into a dict. Raises KeyError if a number is missing."""
    defaults: Mapping[str, Any] = kind._field_defaults  # type: ignore[attr-defined]
    values: dict[str, Any] = {}
    for field, default in defaults.items():
        if default is None:
            values[field] = below(flat, field) or None
        else:
            values[field] = type(default)(flat[field])
    return kind(**values)


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
