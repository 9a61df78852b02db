"""The Vision Transformer for small images."""

from __future__ import annotations

import torch
from torch import nn

from ...errors import ConfigError, require
from ..inputs import Inputs, Kind
from .lenet import IMAGE
from .settings import ViTSettings


class ViT(nn.Module):
    """FedLWS's Vision Transformer (Dosovitskiy et al., 2020): images (n, channels, h, w) -> (n, outputs).

    The image is cut into square patches. One linear layer makes a vector of each patch, a class token comes first,
    trained positions are added, and encoder layers with normalisation first and GELU follow. The classifier takes
    the normalised class token. The paper gives no sizes; the defaults are those of its code: patch 4, width 512,
    6 layers, 8 heads, 512 hidden units, dropout 0.1. 9,532,938 parameters for 32 x 32 with three channels and
    10 classes. Our decisions: the projections of attention have biases, as in torch; class token and positions
    start with a deviation of 0.02, as in the Vision Transformer's own code for positions.

    Raises ConfigError if the sides of the images are not multiples of `patch`, or `width` not of `heads`.
    """

    def __init__(self, settings: ViTSettings, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        inputs.require("vit", Kind.IMAGE, shape=IMAGE)
        channels, height, width = inputs.shape
        self.patch = settings.patch
        if height % self.patch or width % self.patch:
            raise ConfigError(
                f"model.patch = {self.patch} is not allowed: the height and the width of the images must be "
                f"multiples of it, but the task's examples are: {inputs}"
            )
        patches = (height // self.patch) * (width // self.patch)
        self.embedding = nn.Linear(channels * self.patch**2, settings.width)
        self.class_token = nn.Parameter(0.02 * torch.randn(1, 1, settings.width))
        self.positions = nn.Parameter(0.02 * torch.randn(1, patches + 1, settings.width))
        self.drop = nn.Dropout(settings.dropout)
        self.layers = encoder_layers(
            settings.depth, settings.width, settings.heads, settings.mlp_width, settings.dropout
        )
        self.norm = nn.LayerNorm(settings.width)
        self.head = nn.Linear(settings.width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = nn.functional.unfold(x, self.patch, stride=self.patch).transpose(1, 2)  # n, patches, channels p p
        x = self.embedding(x)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        x = self.drop(x)
        for layer in self.layers:
            x = layer(x)
        logits: torch.Tensor = self.head(self.norm(x[:, 0]))
        return logits


def encoder_layers(depth: int, width: int, heads: int, hidden: int, dropout: float) -> nn.ModuleList:
    """Encoder layers of a transformer: normalisation first, GELU, values of shape (n, positions, width).

    Each layer draws its own initial weights. Raises ConfigError if `width` is not a multiple of `heads`.
    """
    require(width % heads == 0, "model.heads", heads, f"a divisor of model.width = {width}")
    return nn.ModuleList(
        nn.TransformerEncoderLayer(
            width, heads, hidden, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        for _ in range(depth)
    )
