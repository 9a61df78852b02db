"""A pretrained backbone with low-rank adapters (Hu et al., ICLR 2022): clients train and send these and the head.

docs/networks.md has the lines that write the file for `initial`.

fedstride run parts=examples/own_lora.py model=lora initial=examples/start.safetensors 'train=[*.down,*.up,head]'
"""

from typing import Annotated

import torch
from torch import nn

from fedstride import Setting, part

WIDTH = 64  # numbers that the backbone returns


def backbone(inputs):
    """The network that is pretrained, without a head."""
    layers = (nn.Linear(inputs.size, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    return nn.Sequential(nn.Flatten(), *layers)


class Adapted(nn.Module):
    """A linear layer, plus the product of two thin matrices, which is zero at the start: W x + b + up down x."""

    def __init__(self, layer, rank):
        super().__init__()
        self.layer = layer
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x):
        """(..., in) -> (..., out)."""
        return self.layer(x) + x @ self.down.T @ self.up.T


def adapt(network, rank):
    """Give each linear layer an adapter."""
    for name in [name for name, layer in network.named_modules() if type(layer) is nn.Linear]:
        parent, _, child = name.rpartition(".")
        setattr(network.get_submodule(parent), child, Adapted(network.get_submodule(name), rank))
    return network


@part(model="lora")
class Lora(nn.Module):
    """The backbone with adapters, and a linear head."""

    def __init__(self, inputs, outputs, *, rank: Annotated[int, Setting("rank of adapters", least=1)] = 4):
        super().__init__()
        self.backbone = adapt(backbone(inputs), rank)
        self.head = nn.Linear(WIDTH, outputs)

    def forward(self, x):
        """Logits."""
        return self.head(self.backbone(x))
