"""FedProx: F_k(w) + (mu/2) ||w - w_sent||^2 (Li et al., MLSys 2020).

The gradient of each step becomes g + mu (w - w_sent). With mu = 0 the term is left out, so that the
result has FedAvg's bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from fedstride.schema import FedProxConfig, ObjectiveConfig

from .plain import Gradients


class FedProx:
    """A pull towards the received parameters; buffers are not pulled."""

    def __init__(self, config: ObjectiveConfig, parameters: Sequence[torch.Tensor]) -> None:
        assert isinstance(config, FedProxConfig)
        self.mu = config.mu
        self.anchor = [parameter.detach().clone() for parameter in parameters]

    @torch.no_grad()
    def correct(self, gradients: Gradients, parameters: Gradients) -> Gradients:
        """g + mu (w - w_sent)."""
        if self.mu == 0.0:
            return gradients
        return [
            g.add(w - anchor, alpha=self.mu)
            for g, w, anchor in zip(gradients, parameters, self.anchor, strict=True)
        ]
