"""LeNet-5 and the networks of two 5x5 convolutions that follow it."""

from __future__ import annotations

import torch
from torch import nn

from ..inputs import Inputs, Kind
from .windows import HALVE, Window, positions

IMAGE = (None, None, None)


def relu_pool(x: torch.Tensor) -> torch.Tensor:
    """ReLU and max pooling of 2. The order does not matter, and this one has four times fewer values for ReLU."""
    return (nn.functional.max_pool2d(x, 2) if torch.is_grad_enabled() else halved(x)).relu()


def halved(x: torch.Tensor) -> torch.Tensor:
    """Max pooling of 2 without the positions of the maxima, which only gradients need: the same values, sooner."""
    height, width = x.shape[-2] // 2 * 2, x.shape[-1] // 2 * 2
    rows = torch.maximum(x[..., 0:height:2, :width], x[..., 1:height:2, :width])
    return torch.maximum(rows[..., 0::2], rows[..., 1::2])


class LeNet5(nn.Module):
    """LeNet-5 (LeCun et al., 1998), for 2D-LRD: images (n, channels, height, width) -> (n, outputs).

    61,706 parameters for 28 x 28 with one channel, 62,006 for 32 x 32 with three. 2D-LRD names the network only.
    Here, as is usual today, it has ReLU and max pooling instead of the original's tanh and trained average
    pooling, all filters of the second convolution see all channels, and the last layer is linear. The first
    convolution has padding 2 if a side is shorter than 32: the original enlarges images of 28 to 32. Sides of at
    least 12.
    """

    def __init__(self, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        inputs.require("lenet5", Kind.IMAGE, shape=IMAGE)
        padding = 2 if min(inputs.shape[1:]) < 32 else 0
        count = positions("lenet5", inputs, [Window(5, padding=padding), HALVE, Window(5), HALVE])
        self.conv1 = nn.Conv2d(inputs.shape[0], 6, 5, padding=padding)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * count, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = relu_pool(self.conv1(x))  # n, 6, 14, 14
        x = relu_pool(self.conv2(x))  # n, 16, 5, 5
        x = self.fc2(self.fc1(x.flatten(1)).relu()).relu()
        logits: torch.Tensor = self.fc3(x)
        return logits


class CNNMnist(nn.Module):
    """FedNNNN's network for MNIST, 431,080 parameters: (n, 1, 28, 28) -> (n, outputs)."""

    def __init__(self, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        inputs.require("cnn_mnist", Kind.IMAGE, shape=(1, 28, 28))
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = relu_pool(self.conv1(x))  # n, 20, 12, 12
        x = relu_pool(self.conv2(x))  # n, 50, 4, 4
        x = self.fc1(x.flatten(1)).relu()  # n, 500
        logits: torch.Tensor = self.fc2(x)  # n, outputs
        return logits


class CNN2Conv3FC(nn.Module):
    """Fedalr's network for CIFAR: images (n, channels, height, width) -> (n, outputs). 797,962 parameters.

    The paper gives two 5x5 convolutions, each with a pooling of 2, and three linear layers. Number of filters and
    units, padding, activation and kind of pooling are those of the CNN for CIFAR-10 in FLGo 0.4.3, the framework
    that the paper uses: 64 and 64 filters, 384 and 192 units, no padding, ReLU, max pooling. Sides of at least 16.
    """

    def __init__(self, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        inputs.require("cnn2conv3fc", Kind.IMAGE, shape=IMAGE)
        count = positions("cnn2conv3fc", inputs, [Window(5), HALVE, Window(5), HALVE])
        self.conv1 = nn.Conv2d(inputs.shape[0], 64, 5)
        self.conv2 = nn.Conv2d(64, 64, 5)
        self.fc1 = nn.Linear(64 * count, 384)
        self.fc2 = nn.Linear(384, 192)
        self.fc3 = nn.Linear(192, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = relu_pool(self.conv1(x))  # n, 64, 14, 14
        x = relu_pool(self.conv2(x))  # n, 64, 5, 5
        x = self.fc2(self.fc1(x.flatten(1)).relu()).relu()
        logits: torch.Tensor = self.fc3(x)
        return logits


class CNNEmnist(nn.Module):
    """A network for EMNIST: images (n, channels, height, width) -> (n, outputs). Sides of at least 4.

    2D-LRD calls its network for EMNIST "CNN" and says no more. Our choice is the layers of LEAF's network for
    FEMNIST (Caldas et al., 2018): two 5x5 convolutions of 32 and 64 filters with padding 2, each with ReLU and max
    pooling, and a linear layer of 2048 units. 6,603,710 parameters for 28 x 28 with one channel and 62 classes.
    """

    def __init__(self, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        inputs.require("cnn_emnist", Kind.IMAGE, shape=IMAGE)
        count = positions("cnn_emnist", inputs, [Window(5, padding=2), HALVE, Window(5, padding=2), HALVE])
        self.conv1 = nn.Conv2d(inputs.shape[0], 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.fc1 = nn.Linear(64 * count, 2048)
        self.fc2 = nn.Linear(2048, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = relu_pool(self.conv1(x))  # n, 32, 14, 14
        x = relu_pool(self.conv2(x))  # n, 64, 7, 7
        x = self.fc1(x.flatten(1)).relu()
        logits: torch.Tensor = self.fc2(x)
        return logits
