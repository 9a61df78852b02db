"""The model that was sent, as rules compute with it. One that no rule can average is refused, by an array's name.

It knows the arrays, and neither the network nor the clients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import ArrayRecord

from fedstride.arrays.dtypes import kind_fault
from fedstride.arrays.finite import held_in, taken_out
from fedstride.arrays.named import Arrays, Declared, Held, Layout, declare, view
from fedstride.arrays.on_device import value
from fedstride.errors import ConfigError

SHOWN = 3
"""Arrays that an error message names."""


def sent_model(record: ArrayRecord, buffers: Sequence[str], *, as_tensors: bool) -> Arrays:
    """The model in this record: with the declared buffers, and without what is not finite in it (`finite.py`).

    Raises ConfigError for arrays that cannot be read or averaged, for a model without parameters, and for NaN in
    an array that is not a buffer. Infinity may be anywhere, since nothing shows here whether an array is trained
    or is a mask: an infinite weight makes the clients' other weights NaN, and their replies are rejected.
    """
    model = declare(_read(record, as_tensors), buffers)
    parameters = _checked_parameters(model)
    held = held_in(model)
    if not held:
        return model
    _check_held(held, parameters)
    result = Declared(taken_out(model, held))
    result.buffers = model.buffers if isinstance(model, Declared) else frozenset()
    result.held = held
    return result


def _read(record: ArrayRecord, as_tensors: bool) -> Arrays:
    model: Arrays = {}
    for name, array in record.items():
        try:
            model[name] = value(array) if as_tensors else view(array)
        except ValueError as error:
            raise ConfigError(
                f"the model's array {name!r} cannot be used: {error}; send real numbers, integers or booleans"
            ) from error
    return model


def _checked_parameters(model: Arrays) -> tuple[str, ...]:
    """The names of the parameters; raises ConfigError for what no rule can average."""
    for name, array in model.items():
        fault = kind_fault(array.dtype)
        if fault is not None:
            raise ConfigError(f"the model's array {name!r} {fault}")
    parameters = Layout.of(model).parameters
    if not any(math.prod(model[name].shape) for name in parameters):
        raise ConfigError(
            f"the model has no floating-point parameters: {_shown(model)}; nothing in it can be averaged. "
            "For trees, use a strategy that joins trees, such as Flower's FedXgbBagging"
        )
    return parameters


def _check_held(held: Mapping[str, Held], parameters: Sequence[str]) -> None:
    for name in parameters:
        values: Any = held[name].values if name in held else None
        if values is not None and bool((values != values).any()):
            raise ConfigError(
                f"the model's array {name!r} contains NaN and is no buffer; give a model that did not diverge or, "
                f"if this array is not trained, name it in the strategy: buffers=[{name!r}]"
            )


def _shown(model: Arrays) -> str:
    if not model:
        return "it has no arrays"
    texts = [f"{name!r} is {array.dtype}{list(array.shape)}" for name, array in model.items()]
    return ", ".join(texts[:SHOWN]) + (f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else "")
