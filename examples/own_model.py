"""A user-defined network, with one setting.

fedstride run parts=examples/own_model.py model=narrow model.width=32
"""

from typing import Annotated

import torch
from torch import nn

from fedstride import Setting, part
from fedstride.tasks.inputs import Inputs


@part(model="narrow")
class Narrow(nn.Module):
    """One hidden layer of `width` units: (n, ...) -> (n, outputs)."""

    def __init__(
        self,
        inputs: Inputs,
        outputs: int,
        *,
        width: Annotated[int, Setting("number of hidden units", least=1)] = 64,
    ) -> None:
        super().__init__()
        self.hidden = nn.Linear(inputs.size, width)
        self.classifier = nn.Linear(width, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.classifier(self.hidden(x.flatten(1)).relu())
