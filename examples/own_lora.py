"""A pretrained backbone with low-rank adapters (Hu et al., ICLR 2022): clients train and send these and the head.

fedstride run parts=examples/own_lora.py model=lora initial=start.safetensors 'train=["*.down","*.up","head"]'
"""

from typing import Annotated

import torch
from torch import nn

from fedstride import Setting, part


class Adapted(nn.Module):
    """A linear layer, plus the product of two thin matrices, which is zero at the start: W x + b + up down x."""

    def __init__(self, layer, rank):
        super().__init__()
        self.layer = layer
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / layer.in_features**0.5)
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x):
        """(n, in) -> (n, out)."""
        return self.layer(x) + x @ self.down.T @ self.up.T


@part(model="lora")
class Lora(nn.Module):
    """A backbone of two linear layers, each with an adapter, and a linear head."""

    def __init__(self, inputs, outputs, *, rank: Annotated[int, Setting("rank of adapters", least=1)] = 4):
        super().__init__()
        sizes = ((inputs.size, 64), (64, 64))
        self.backbone = nn.Sequential(*(Adapted(nn.Linear(*size), rank) for size in sizes))
        self.head = nn.Linear(64, outputs)

    def forward(self, x):
        """Logits."""
        for layer in self.backbone:
            x = layer(x.flatten(1)).relu()
        return self.head(x)
