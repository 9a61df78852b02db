"""A user-defined network, with one setting.

fedstride run parts=examples/own_model.py model=narrow model.width=32
"""

from typing import Annotated

import torch
from torch import nn

from fedstride import Setting, part


@part(model="narrow")
class Narrow(nn.Module):
    """One hidden layer of `width` units: (n, ...) -> (n, classes)."""

    def __init__(
        self,
        shape: tuple[int, ...],
        classes: int,
        *,
        width: Annotated[int, Setting("number of hidden units", least=1)] = 64,
    ) -> None:
        super().__init__()
        self.hidden = nn.Linear(int(torch.tensor(shape).prod()), width)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        return self.classifier(self.hidden(x.flatten(1)).relu())
