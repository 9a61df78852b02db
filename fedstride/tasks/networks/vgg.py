"""Networks of 3x3 convolutions without shortcuts: FedNNNN's and FedLWS's CNN, and VGG-9."""

from __future__ import annotations

import torch
from torch import nn

from ..inputs import Inputs, Kind
from .lenet import IMAGE, relu_pool
from .norms import norm2d
from .settings import NormSettings
from .windows import HALVE, Window, positions


class CNNCifar10(nn.Module):
    """FedNNNN's network for CIFAR-10: images (n, channels, height, width) -> (n, outputs).

    1,146,088 parameters for 32 x 32 with three channels and 10 classes. Six 3x3 convolutions of 32, 32, 64, 64,
    128 and 128 filters with padding 1 and normalisation, max pooling after every second one, and linear layers
    of 382 and 192 units (382 is printed in the paper). Sides of at least 8.
    """

    def __init__(self, settings: NormSettings, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        inputs.require("cnn_cifar10", Kind.IMAGE, shape=IMAGE)
        count = positions("cnn_cifar10", inputs, [HALVE] * 3)
        self.conv1 = nn.Conv2d(inputs.shape[0], 32, 3, padding=1)
        self.norm1 = norm2d(settings, 32)
        self.conv2 = nn.Conv2d(32, 32, 3, padding=1)
        self.norm2 = norm2d(settings, 32)
        self.conv3 = nn.Conv2d(32, 64, 3, padding=1)
        self.norm3 = norm2d(settings, 64)
        self.conv4 = nn.Conv2d(64, 64, 3, padding=1)
        self.norm4 = norm2d(settings, 64)
        self.conv5 = nn.Conv2d(64, 128, 3, padding=1)
        self.norm5 = norm2d(settings, 128)
        self.conv6 = nn.Conv2d(128, 128, 3, padding=1)
        self.norm6 = norm2d(settings, 128)
        self.fc1 = nn.Linear(128 * count, 382)
        self.fc2 = nn.Linear(382, 192)
        self.fc3 = nn.Linear(192, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = self.norm1(self.conv1(x)).relu()
        x = relu_pool(self.norm2(self.conv2(x)))  # n, 32, 16, 16
        x = self.norm3(self.conv3(x)).relu()
        x = relu_pool(self.norm4(self.conv4(x)))  # n, 64, 8, 8
        x = self.norm5(self.conv5(x)).relu()
        x = relu_pool(self.norm6(self.conv6(x)))  # n, 128, 4, 4
        x = self.fc2(self.fc1(x.flatten(1)).relu()).relu()
        logits: torch.Tensor = self.fc3(x)
        return logits


class SimpleCNN(nn.Module):
    """FedLWS's CNN: images (n, channels, height, width) -> (n, outputs).

    122,570 parameters for 32 x 32 with three channels and 10 classes. Three 3x3 convolutions of 32, 64 and 64
    filters without padding, a linear layer of 64 units. The paper states one max pooling; the 1024 inputs of its
    linear layer need a second one, after the second convolution, where the paper's code has it. The paper does
    not say how it feeds images of 28 x 28 with one channel: here the first linear layer has 576 inputs then
    (93,322 parameters). Sides of at least 18.
    """

    def __init__(self, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        inputs.require("simple_cnn", Kind.IMAGE, shape=IMAGE)
        count = positions("simple_cnn", inputs, [Window(3), HALVE, Window(3), HALVE, Window(3)])
        self.conv1 = nn.Conv2d(inputs.shape[0], 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.conv3 = nn.Conv2d(64, 64, 3)
        self.fc1 = nn.Linear(64 * count, 64)
        self.fc2 = nn.Linear(64, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = relu_pool(self.conv1(x))  # n, 32, 15, 15
        x = relu_pool(self.conv2(x))  # n, 64, 6, 6
        x = self.conv3(x).relu()  # n, 64, 4, 4
        x = self.fc1(x.flatten(1)).relu()
        logits: torch.Tensor = self.fc2(x)
        return logits


class VGG9(nn.Module):
    """FedNLR's VGG-9: images (n, channels, height, width) -> (n, outputs).

    3,491,530 parameters for 32 x 32 with three channels and 10 classes. The paper takes the network from Li et al.
    (ICDE 2022); layers and dropout are those of that paper's code (NIID-Bench): six 3x3 convolutions of 32, 64,
    128, 128, 256 and 256 filters with padding 1, max pooling after every second one, linear layers of 512 and 512
    units. Initial weights as in FedNLR: Kaiming's uniform for convolutions, with the gain of ReLU, and Xavier's
    normal for linear layers. The paper does not mention biases: here they start at zero. Sides of at least 8.
    """

    def __init__(self, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        inputs.require("vgg9", Kind.IMAGE, shape=IMAGE)
        count = positions("vgg9", inputs, [HALVE] * 3)
        self.conv1 = nn.Conv2d(inputs.shape[0], 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.conv3 = nn.Conv2d(64, 128, 3, padding=1)
        self.conv4 = nn.Conv2d(128, 128, 3, padding=1)
        self.conv5 = nn.Conv2d(128, 256, 3, padding=1)
        self.conv6 = nn.Conv2d(256, 256, 3, padding=1)
        self.fc1 = nn.Linear(256 * count, 512)
        self.fc2 = nn.Linear(512, 512)
        self.fc3 = nn.Linear(512, outputs)
        self.drop_channels = nn.Dropout2d(0.05)
        self.drop = nn.Dropout(0.1)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight, nonlinearity="relu")
            elif isinstance(module, nn.Linear):
                nn.init.xavier_normal_(module.weight)
            if isinstance(module, nn.Conv2d | nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = self.conv1(x).relu()
        x = relu_pool(self.conv2(x))  # n, 64, 16, 16
        x = self.conv3(x).relu()
        x = self.drop_channels(relu_pool(self.conv4(x)))  # n, 128, 8, 8
        x = self.conv5(x).relu()
        x = self.drop(relu_pool(self.conv6(x)))  # n, 256, 4, 4
        x = self.fc2(self.fc1(x.flatten(1)).relu()).relu()
        logits: torch.Tensor = self.fc3(self.drop(x))
        return logits
