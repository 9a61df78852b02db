"""The loss as it is: mean cross-entropy of the mini-batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch

from fedstride.schema import ObjectiveConfig

Gradients = Sequence[torch.Tensor]


class Objective(Protocol):
    """What an objective adds to the gradient of the loss.

    Made anew each round, with the parameters as they were received.
    """

    def correct(self, gradients: Gradients, parameters: Gradients) -> Gradients:
        """The gradients of one step, corrected: new tensors, since autograd may hand out one tensor twice."""
        ...


class Plain:
    """Adds nothing."""

    def __init__(self, config: ObjectiveConfig, parameters: Sequence[torch.Tensor]) -> None:
        pass

    def correct(self, gradients: Gradients, parameters: Gradients) -> Gradients:
        """The gradients as they are."""
        return gradients
