"""Networks of linear layers: perceptrons with one or two hidden layers, and the linear model."""

from __future__ import annotations

import torch
from torch import nn

from ..inputs import Inputs, Kind
from .settings import MLPSettings

VECTORS = (Kind.IMAGE, Kind.SIGNAL, Kind.FRAMES, Kind.TABLE)
"""Examples that these networks take, as one vector. Token numbers are not values."""


class MLP(nn.Module):
    """One hidden layer, 200 units by default: (n, ...) -> (n, outputs).

    FedNLR's MLP for MNIST has 25 units (width=25): 19,885 parameters.
    """

    def __init__(self, settings: MLPSettings, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        inputs.require("mlp", *VECTORS)
        self.fc1 = nn.Linear(inputs.size, settings.width)
        self.fc2 = nn.Linear(settings.width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        logits: torch.Tensor = self.fc2(self.fc1(x.flatten(1)).relu())
        return logits


class MLP3(nn.Module):
    """FedLWS's MLP of three layers: (n, ...) -> (n, outputs).

    The paper does not give the number of units. Here both hidden layers have `width` units (200), and ReLU.
    """

    def __init__(self, settings: MLPSettings, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        inputs.require("mlp3", *VECTORS)
        self.fc1 = nn.Linear(inputs.size, settings.width)
        self.fc2 = nn.Linear(settings.width, settings.width)
        self.fc3 = nn.Linear(settings.width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = self.fc1(x.flatten(1)).relu()
        logits: torch.Tensor = self.fc3(self.fc2(x).relu())
        return logits


class SVM(nn.Module):
    """The linear model of a support vector machine: (n, ...) -> (n, outputs), one score for each class.

    It becomes a support vector machine with a hinge loss and weight decay. With cross-entropy it is a logistic
    regression. 2D-LRD's motivating run has one (Fig. 2); the paper gives neither its loss nor its size.
    """

    def __init__(self, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        inputs.require("svm", *VECTORS)
        self.fc = nn.Linear(inputs.size, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores."""
        scores: torch.Tensor = self.fc(x.flatten(1))
        return scores
