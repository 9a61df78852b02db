"""Residual networks for small images: ResNet20, and the 56-layer network with four times the filters."""

from __future__ import annotations

import torch
from torch import nn

from ..inputs import Inputs, Kind
from .lenet import IMAGE
from .norms import norm2d
from .settings import NormSettings


class Block(nn.Module):
    """Two 3x3 convolutions with normalisation, and a shortcut without parameters (He et al., 2016, option A).

    (n, channels, h, w) -> (n, filters, h / stride, w / stride), sides rounded up. If the shapes differ, the
    shortcut takes every `stride`-th position and adds channels of zeros at the end.
    """

    def __init__(self, settings: NormSettings, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.stride, self.added = stride, filters - channels
        self.conv1 = nn.Conv2d(channels, filters, 3, stride=stride, padding=1, bias=False)
        self.norm1 = norm2d(settings, filters)
        self.conv2 = nn.Conv2d(filters, filters, 3, padding=1, bias=False)
        self.norm2 = norm2d(settings, filters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The activations of the block."""
        shortcut = x[:, :, :: self.stride, :: self.stride]
        if self.added:
            shortcut = nn.functional.pad(shortcut, (0, 0, 0, 0, 0, self.added))
        x = self.norm1(self.conv1(x)).relu()
        x = self.norm2(self.conv2(x)) + shortcut
        return x.relu()


class ResNet(nn.Module):
    """The residual network for CIFAR (He et al., 2016, section 4.2): (n, channels, h, w) -> (n, outputs).

    A 3x3 convolution of `width` filters, three stages of `blocks` blocks with `width`, 2 `width` and 4 `width`
    filters, the mean over positions, a linear layer: 6 `blocks` + 2 layers. Convolutions have no bias. Their
    initial weights have Kaiming's normal distribution, as in the paper; those of the linear layer are torch's.
    """

    def __init__(self, settings: NormSettings, channels: int, outputs: int, *, blocks: int, width: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm1 = norm2d(settings, width)
        self.stage1 = _stage(settings, width, width, blocks, 1)
        self.stage2 = _stage(settings, width, 2 * width, blocks, 2)
        self.stage3 = _stage(settings, 2 * width, 4 * width, blocks, 2)
        self.fc = nn.Linear(4 * width, outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = self.norm1(self.conv1(x)).relu()
        x = self.stage3(self.stage2(self.stage1(x)))
        logits: torch.Tensor = self.fc(x.mean((2, 3)))
        return logits


class ResNet20(ResNet):
    """ResNet20 for CIFAR (He et al., 2016), for FedLWS: images of any size and number of channels.

    269,722 parameters for three channels and 10 classes, the weights and biases of BatchNorm included. Shortcuts
    are option A (no parameters), which the paper uses for CIFAR.
    """

    def __init__(self, settings: NormSettings, inputs: Inputs, outputs: int) -> None:
        inputs.require("resnet20", Kind.IMAGE, shape=IMAGE)
        super().__init__(settings, inputs.shape[0], outputs, blocks=3, width=16)


class WRN56x4(ResNet):
    """FedLWS's WRN56_4: 56 layers with four times as many filters, for images of any size and number of channels.

    The paper says no more. Here it is the ResNet56 of He et al. (2016) with 64, 128 and 256 filters instead of 16,
    32 and 64, the first convolution included, and with shortcuts of option A: 13,586,506 parameters for three
    channels and 10 classes. Wide ResNets (Zagoruyko and Komodakis, 2016) normalise before the convolutions,
    and have 6 n + 4 layers.
    """

    def __init__(self, settings: NormSettings, inputs: Inputs, outputs: int) -> None:
        inputs.require("wrn56_4", Kind.IMAGE, shape=IMAGE)
        super().__init__(settings, inputs.shape[0], outputs, blocks=9, width=64)


def _stage(settings: NormSettings, channels: int, filters: int, blocks: int, stride: int) -> nn.Sequential:
    first = Block(settings, channels, filters, stride)
    return nn.Sequential(first, *(Block(settings, filters, filters, 1) for _ in range(blocks - 1)))
