"""Finds a network's last linear layer, and the representation of an example: the input of this layer.

The last layer is the linear module whose output is the network's result. It is found in a forward pass, so no name
or kind of network is assumed.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from ...errors import ConfigError
from ..inputs import Inputs, Kind


@torch.no_grad()
def last_layer(model: nn.Module, inputs: Inputs) -> nn.Linear:
    """The linear module whose output, (n, outputs), is the result of the model in eval mode.

    Changes no parameter, buffer, mode or random state. Raises ConfigError if there is none.
    """
    parameter = next(model.parameters())
    kind = torch.int64 if inputs.kind is Kind.TOKENS else parameter.dtype
    example = torch.zeros((1, *inputs.shape), dtype=kind, device=parameter.device)
    outputs: list[tuple[nn.Linear, Any]] = []
    with _eval(model), ExitStack() as hooks:
        for module in model.modules():
            if isinstance(module, nn.Linear):
                handle = module.register_forward_hook(lambda layer, _, output: outputs.append((layer, output)))
                hooks.callback(handle.remove)
        result = model(example)
    for layer, output in outputs:
        if output is result and output.dim() == 2:
            return layer
    raise ConfigError(
        "this network has no last linear layer: its result is not the output of a linear module; choose "
        "another model"
    )


class Representations:
    """A context in which the last layer's input in the latest forward pass, (n, d), is `value`."""

    value: torch.Tensor

    def __init__(self, layer: nn.Linear) -> None:
        self._layer = layer

    def __enter__(self) -> Representations:
        self._handle = self._layer.register_forward_pre_hook(self._keep)
        return self

    def __exit__(self, *error: object) -> None:
        self._handle.remove()

    def _keep(self, layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        self.value = inputs[0]


def without_last_layer(model: nn.Module, layer: nn.Linear) -> nn.Module:
    """A copy of the model whose result is the representation. It is in eval mode and has no gradients."""
    copied: dict[int, Any] = {}
    features = copy.deepcopy(model, copied)
    last = copied[id(layer)]
    for name, module in list(features.named_modules(remove_duplicate=False)):
        if module is last:
            parent, _, attribute = name.rpartition(".")
            setattr(features.get_submodule(parent), attribute, nn.Identity())
    return features.requires_grad_(False).eval()


@contextmanager
def _eval(model: nn.Module) -> Iterator[None]:
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode
