"""The forward pass of a network for several clients at once, each with weights of its own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from .batches import Batch
from .functions import Draws, Functions

Named = Mapping[str, torch.Tensor]


class Network:
    """A network in training mode, whose forward pass is that of several clients.

    `fixed`: modules that stay in eval mode.
    """

    def __init__(self, model: nn.Module, fixed: Iterable[nn.Module]) -> None:
        self.model, self.fixed = model, list(fixed)
        self.places = _places(model)

    def __call__(self, parameters: Named, buffers: Named, batch: Batch, draws: Draws) -> torch.Tensor:
        """The outputs (clients, longest, ...) with stacked weights. The buffers change."""
        self.model.train()
        for module in self.fixed:
            module.training = False

        def forward(p: dict[str, Any], b: dict[str, Any], x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
            with Functions(mask, draws, b, filled=batch.filled).in_place():
                everywhere = {place: value for name, value in {**p, **b}.items() for place in self.places[name]}
                outputs: torch.Tensor = torch.func.functional_call(self.model, everywhere, (x,), tie_weights=False)
                return outputs

        outputs: torch.Tensor = torch.func.vmap(forward)(dict(parameters), dict(buffers), batch.x, batch.mask)
        return outputs


def _places(model: nn.Module) -> dict[str, list[str]]:
    """For each parameter and buffer by its first name: a name for each module that has it.

    A tensor can be that of two modules. A module can have two names, of which one is here: torch, which knows the
    first case, would replace the tensor twice in the second one, and put back a wrong one.
    """
    names: dict[int, tuple[str, list[str]]] = {}
    for prefix, module in model.named_modules():  # each module once
        tensors = {**dict(module._parameters), **dict(module._buffers)}
        for leaf, tensor in tensors.items():
            if tensor is not None:
                name = f"{prefix}.{leaf}" if prefix else leaf
                names.setdefault(id(tensor), (name, []))[1].append(name)
    return dict(names.values())
