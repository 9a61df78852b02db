"""The network, training and evaluation as one writes them in torch; knows no rival."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import nn

EVALUATION_BATCH = 250


class Network(nn.Module):
    """The quickstart's network, 431,080 parameters: two convolutions, two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 5)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 500)
        self.fc2 = nn.Linear(500, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits of images (n, 1, 28, 28)."""
        x = nn.functional.max_pool2d(self.conv1(x).relu(), 2)
        x = nn.functional.max_pool2d(self.conv2(x).relu(), 2)
        logits: torch.Tensor = self.fc2(self.fc1(x.flatten(1)).relu())
        return logits


def network(weights: Mapping[str, np.ndarray], kind: type[Network] = Network) -> Network:
    """The network, or a subclass of it, with these weights."""
    made = kind()
    made.load_state_dict({name: torch.from_numpy(value) for name, value in weights.items()})
    return made


def train(model: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int, batch_size: int, lr: float) -> None:
    """Plain SGD."""
    optimiser = torch.optim.SGD(model.parameters(), lr=lr)
    model.train()
    for _ in range(epochs):
        for chosen in torch.randperm(len(y)).split(batch_size):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(x[chosen]), y[chosen]).backward()
            optimiser.step()


@torch.no_grad()
def accuracy(model: nn.Module, x: np.ndarray, y: np.ndarray) -> float:
    """The share of right predictions."""
    model.eval()
    batches = zip(
        torch.from_numpy(x).split(EVALUATION_BATCH), torch.from_numpy(y).split(EVALUATION_BATCH), strict=True
    )
    return sum(int((model(images).argmax(1) == labels).sum()) for images, labels in batches) / len(y)
