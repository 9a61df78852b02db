"""The loss as it is: mean cross-entropy of the mini-batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from fedstride.schema import ObjectiveConfig


class Objective(Protocol):
    """What an objective adds to the gradient of the loss.

    Made anew each round, with the parameters as they were received; `correct_` may change the
    gradients in place.
    """

    def correct_(self, gradients: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]) -> None:
        """Change the gradients of one step in place."""


class Plain:
    """Adds nothing."""

    def __init__(self, config: ObjectiveConfig, parameters: Sequence[torch.Tensor]) -> None:
        pass

    def correct_(self, gradients: Sequence[torch.Tensor], parameters: Sequence[torch.Tensor]) -> None:
        """Leave the gradients as they are."""
