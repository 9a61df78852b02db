"""The convolutional network for signals."""

from __future__ import annotations

import torch
from torch import nn

from ..inputs import Inputs, Kind
from .norms import norm1d
from .settings import CNN1dSettings
from .windows import Window, positions


class CNN1d(nn.Module):
    """One-dimensional convolutions: signals (n, channels, samples) -> (n, outputs). Our own; no paper has it.

    Three convolutions of `width`, 2 `width` and 4 `width` filters of size 9 with padding 4, normalisation and
    ReLU, max pooling of 4 after the first two, the mean over positions, one linear layer. At least 16 samples.
    """

    def __init__(self, settings: CNN1dSettings, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        inputs.require("cnn1d", Kind.SIGNAL, shape=(None, None))
        positions("cnn1d", inputs, [Window(4, 4), Window(4, 4)])
        width = settings.width
        self.conv1 = nn.Conv1d(inputs.shape[0], width, 9, padding=4)
        self.norm1 = norm1d(settings, width)
        self.conv2 = nn.Conv1d(width, 2 * width, 9, padding=4)
        self.norm2 = norm1d(settings, 2 * width)
        self.conv3 = nn.Conv1d(2 * width, 4 * width, 9, padding=4)
        self.norm3 = norm1d(settings, 4 * width)
        self.fc = nn.Linear(4 * width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = nn.functional.max_pool1d(self.norm1(self.conv1(x)).relu(), 4)
        x = nn.functional.max_pool1d(self.norm2(self.conv2(x)).relu(), 4)
        x = self.norm3(self.conv3(x)).relu().mean(2)
        logits: torch.Tensor = self.fc(x)
        return logits
