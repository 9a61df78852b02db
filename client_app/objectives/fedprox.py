"""FedProx: F_k(w) + (mu/2) ||w - w^t||^2 (Li et al., MLSys 2020).

The gradient of each step becomes g + mu (w - w^t), where w^t is the received model (PX2). With mu = 0 no term is
added, so the result is bit-identical to FedAvg's.
"""

from __future__ import annotations

import torch

from ..method import Job, Method, Plan, Received, State, Tensors
from ..parts import FedProxSettings


class FedProx(Method):
    """Adds a term that pulls the parameters towards the received ones. Buffers are not affected."""

    def __init__(self, settings: FedProxSettings) -> None:
        self.mu = settings.mu

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """The correction mu (w - w^t)."""
        if self.mu == 0.0:
            return Plan()
        self.start = job.copies()
        self.result = job.zeros()
        return Plan(corrections=(self.correct,), proximal=self.mu)

    def correct(self, gradients: Tensors, parameters: Tensors) -> Tensors:
        """g + mu (w - w^t), in the same memory in each step."""
        for g, w, start, out in zip(gradients, parameters, self.start, self.result, strict=True):
            torch.sub(w, start, out=out)
            torch.add(g, out, alpha=self.mu, out=out)
        return self.result
