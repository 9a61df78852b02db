"""Values that are not finite: which array has one, and how those of the model that was sent stay as they are.

A network may have a mask of 0 and -inf. Such a value takes part in no sum and no norm: whoever computes with the
model has 0 in its place (`taken_out`), and its bits are put back afterwards (`put_back`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .named import Arrays, Declared, Held, host, is_floating, namespace
from .on_device import is_tensor


def first_not_finite(model: Mapping[str, Any]) -> str | None:
    """The name of the first array that contains NaN or infinity; None if there is none."""
    return next((name for name, array in model.items() if is_floating(array) and not _is_finite(array)), None)


def held_in(model: Mapping[str, Any]) -> dict[str, Held]:
    """The places and values that are not finite, by array; empty for most models."""
    held = {}
    for name, array in model.items():
        if is_floating(array) and not _is_finite(array):
            places = ~namespace(array).isfinite(array)
            held[name] = Held(places, array[places])
    return held


def held_of(model: Mapping[str, Any]) -> Mapping[str, Held]:
    """What was taken out of this model, if it is the model that was sent."""
    return model.held if isinstance(model, Declared) else {}


def first_changed(model: Mapping[str, Any], held: Mapping[str, Held]) -> str | None:
    """The name of the first array that has other bits in these places; None if all are as they were."""
    for name, nonfinite in held.items():
        if host(model[name][nonfinite.places]).tobytes() != host(nonfinite.values).tobytes():
            return name
    return None


def taken_out(model: Mapping[str, Any], held: Mapping[str, Held]) -> Arrays:
    """The arrays with 0 in these places; those without such a place are the same objects."""
    return _with(model, held, lambda nonfinite: 0)


def put_back(model: Mapping[str, Any], held: Mapping[str, Held]) -> Arrays:
    """The arrays with the values that were taken out of these places."""
    return _with(model, held, lambda nonfinite: nonfinite.values)


def _with(model: Mapping[str, Any], held: Mapping[str, Held], values: Callable[[Held], Any]) -> Arrays:
    result: Arrays = Declared(model) if isinstance(model, Declared) else dict(model)
    if isinstance(result, Declared) and isinstance(model, Declared):
        result.buffers, result.held = model.buffers, model.held
    for name in result.keys() & held.keys():
        array = model[name].clone() if is_tensor(model[name]) else np.array(model[name])
        array[held[name].places] = values(held[name])
        result[name] = array
    return result


def _is_finite(array: Any) -> bool:
    xp = namespace(array)
    return bool(xp.all(xp.isfinite(array)))
