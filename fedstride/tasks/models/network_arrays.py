"""Checks before a run that a network's arrays can be sent, averaged and loaded again; names one that cannot.

It knows networks and arrays, and nothing of a run. What strategies check without a network is in
`strategies/shell/sent_model.py`.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

from ...arrays.dtypes import kind_fault
from ...arrays.finite import first_changed, held_in
from ...arrays.named import is_floating
from ...errors import ConfigError
from ..inputs import Inputs
from .networks_by_name import example
from .tensors import load_arrays, to_arrays


def check_arrays(network: nn.Module, name: str, inputs: Inputs) -> None:
    """Raise ConfigError, with the model's name and the array's, for a network that cannot be trained by clients.

    What is refused: state that is no tensor; arrays that are not dense real numbers, integers or booleans in
    memory; a `state_dict` with other names, shapes or dtypes than those of the parameters and buffers; a
    `load_state_dict` that does not load what it gets; no parameter of real numbers; NaN in a parameter, or
    infinity in one that is trained; a buffer with values that are not finite, if a forward pass in train mode
    changes them. A network that is not refused does not change.
    """
    where = f"model = {name!r} ({type(network).__name__})"
    state = network.state_dict()
    for key, value in state.items():
        fault = _fault(value)
        if fault is not None:
            raise ConfigError(f"{where}: {key!r} {fault}")
    _check_names(network, state, where)
    _check_loading(network, where)
    _check_finite(network, where, inputs)


def _fault(value: Any) -> str | None:
    """Why a value of a `state_dict` is no array that can be sent; None if it is one."""
    if not isinstance(value, torch.Tensor):
        return f"is a {type(value).__name__} and no tensor; register what it holds as a buffer (get_extra_state)"
    if value.is_quantized or value.layout is not torch.strided:
        kind = "quantized" if value.is_quantized else str(value.layout).removeprefix("torch.")
        return f"is {kind}, which cannot be averaged; keep the weights as dense tensors"
    if value.is_meta:
        return "has no values (device meta); build the network on the processor"
    return kind_fault(value.dtype)


def _check_names(network: nn.Module, state: dict[str, Any], where: str) -> None:
    """The state is the parameters and the buffers, as they are: a hook may add, rename, drop or change some."""
    registered = _registered(network)
    for key in [*registered, *state]:
        if key not in state:
            raise ConfigError(f"{where}: {key!r} is missing in its state_dict(); remove the hook that drops it")
        if key not in registered:
            raise ConfigError(
                f"{where}: {key!r} in its state_dict() is no parameter or buffer; remove the hook that adds it"
            )
        if (state[key].shape, state[key].dtype) != (registered[key].shape, registered[key].dtype):
            raise ConfigError(f"{where}: its state_dict() has another {key!r}; remove the hook that changes it")
    if not any(array.is_floating_point() and array.numel() for _, array in network.named_parameters()):
        raise ConfigError(f"{where} has no floating-point parameters, so there is nothing to train")


def _registered(network: nn.Module) -> dict[str, torch.Tensor]:
    """All parameters and the buffers that belong to a network's state, by each of their names."""
    arrays: dict[str, torch.Tensor] = dict(network.named_parameters(remove_duplicate=False))
    for prefix, module in network.named_modules(remove_duplicate=False):
        passing = getattr(module, "_non_persistent_buffers_set", ())
        for key, buffer in module.named_buffers(recurse=False, remove_duplicate=False):
            if key not in passing:
                arrays[f"{prefix}.{key}" if prefix else key] = buffer
    return arrays


def _check_loading(network: nn.Module, where: str) -> None:
    """Arrays with other values come back from the network as they were loaded."""
    before = to_arrays(network)
    other = {name: np.ones_like(array) if is_floating(array) else array for name, array in before.items()}
    try:
        load_arrays(network, other)
        after = to_arrays(network)
        load_arrays(network, before)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(f"{where}: its arrays cannot be loaded: {' '.join(str(error).split())}") from error
    for name, array in other.items():
        if array.tobytes() != after[name].tobytes():
            raise ConfigError(f"{where}: {name!r} is not what was loaded; remove the hook of load_state_dict()")


def _check_finite(network: nn.Module, where: str, inputs: Inputs) -> None:
    held = held_in(to_arrays(network))
    if not held:
        return
    parameters = dict(network.named_parameters())
    for name, not_finite in held.items():
        is_nan = bool((not_finite.values != not_finite.values).any())
        if name in parameters and (is_nan or parameters[name].requires_grad):
            raise ConfigError(
                f"{where}: the parameter {name!r} begins with {'NaN' if is_nan else 'infinity'}; change its "
                "initialisation, or register what is not trained as a buffer"
            )
    try:
        duplicate = copy.deepcopy(network).train()
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            duplicate(example(inputs))
    except Exception:  # the first training says why
        return
    changed = first_changed(to_arrays(duplicate), held)
    if changed is not None:
        raise ConfigError(
            f"{where}: the buffer {changed!r} begins with values that are not finite, which change in training; "
            "begin with finite ones"
        )
