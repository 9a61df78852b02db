"""Networks by name, with initial weights drawn from the run's seed."""

from __future__ import annotations

import torch
from torch import nn

from .. import seeds
from ..errors import ConfigError
from ..parts import Choice
from .parts import MODELS


class CNNMnist(nn.Module):
    """FedNNNN's network for MNIST, 431,080 parameters: (n, 1, 28, 28) -> (n, classes)."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        if shape != (1, 28, 28):
            raise ConfigError(
                f"model = 'cnn_mnist' needs examples of shape (1, 28, 28), but the task's examples have {shape}; "
                "choose another model, for example model=mlp"
            )
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = nn.functional.max_pool2d(self.conv1(x).relu(), 2)  # n, 20, 12, 12
        x = nn.functional.max_pool2d(self.conv2(x).relu(), 2)  # n, 50, 4, 4
        x = self.fc1(x.flatten(1)).relu()  # n, 500
        logits: torch.Tensor = self.fc2(x)  # n, classes
        return logits


class MLP(nn.Module):
    """One hidden layer of 200 units: (n, ...) -> (n, classes)."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(int(torch.tensor(shape).prod()), 200)
        self.fc2 = nn.Linear(200, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        logits: torch.Tensor = self.fc2(self.fc1(x.flatten(1)).relu())
        return logits


def build(config: Choice, shape: tuple[int, ...], classes: int, seed: int) -> nn.Module:
    """The network with initial weights drawn from (seed, "initial weights"). The global random state is unchanged.

    Raises ConfigError for an unknown name or an example shape that the network does not support.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeds.derive(seed, "initial weights"))
        network: nn.Module = MODELS.make(config, shape, classes)
        return network
