"""Networks by name, with initial weights drawn from the run's seed."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence

import torch
from torch import nn

from .. import seeds
from ..errors import ConfigError, require
from ..parts import Choice
from .inputs import Inputs, Kind
from .parts import MODELS

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
LAYERS = (nn.Linear, *CONVOLUTIONS)
MAX_NAMES = 20
"""Names of modules in an error message."""


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
        x = nn.functional.max_pool2d(self.conv1(x).relu(), 2)  # n, 20, 12, 12
        x = nn.functional.max_pool2d(self.conv2(x).relu(), 2)  # n, 50, 4, 4
        x = self.fc1(x.flatten(1)).relu()  # n, 500
        logits: torch.Tensor = self.fc2(x)  # n, outputs
        return logits


class MLP(nn.Module):
    """One hidden layer of 200 units: (n, ...) -> (n, outputs)."""

    def __init__(self, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        inputs.require("mlp", Kind.IMAGE, Kind.SIGNAL, Kind.FRAMES, Kind.TABLE)
        self.fc1 = nn.Linear(inputs.size, 200)
        self.fc2 = nn.Linear(200, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        logits: torch.Tensor = self.fc2(self.fc1(x.flatten(1)).relu())
        return logits


def build(config: Choice, inputs: Inputs, outputs: int, seed: int) -> nn.Module:
    """The network with initial weights drawn from (seed, "initial weights"). The global random state is unchanged.

    Raises ConfigError for an unknown name or examples that the network does not take.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seeds.derive(seed, "initial weights"))
        network: nn.Module = MODELS.make(config, inputs, outputs)
        return network


def layers_matching(model: nn.Module, patterns: Sequence[str], key: str) -> set[nn.Module]:
    """The linear and convolution modules whose name matches one of the patterns (fnmatch, case-sensitive).

    A module with two names matches by either. Raises ConfigError, naming `key`, for a pattern that matches none.
    """
    require(not isinstance(patterns, str), key, patterns, "a list of patterns, such as ['attention.*']")
    named = [(n, m) for n, m in model.named_modules(remove_duplicate=False) if isinstance(m, LAYERS)]
    found: set[nn.Module] = set()
    for pattern in patterns:
        matching = {module for name, module in named if fnmatch.fnmatchcase(name, pattern)}
        if not matching:
            names = ", ".join(repr(name) for name, _ in named[:MAX_NAMES]) or "none"
            more = f" and {len(named) - MAX_NAMES} more" if len(named) > MAX_NAMES else ""
            raise ConfigError(
                f"{key} = {list(patterns)!r} is not allowed: the pattern {pattern!r} matches no linear or "
                f"convolution module of the model; the names of these modules are: {names}{more}"
            )
        found |= matching
    return found
