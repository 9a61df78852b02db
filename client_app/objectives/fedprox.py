"""FedProx: F_k(w) + (mu/2) ||w - w^t||^2 (Li et al., MLSys 2020).

The gradient of each step becomes g + mu (w - w^t), where w^t is the received model (PX2). With mu = 0 no term is
added, so the result is bit-identical to FedAvg's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ..method import Job, Method, Plan, Received, State, Tensors
from ..parts import FedProxSettings
from ..pieces import Correction


@dataclass(frozen=True)
class Pull(Correction):
    """g + mu (w - w^t), in the same memory in each step."""

    mu: float
    start: Tensors  # w^t
    memory: Tensors  # for the result

    def __call__(self, gradients: Tensors, parameters: Tensors) -> Tensors:
        """The corrected gradients."""
        for g, w, start, out in zip(gradients, parameters, self.start, self.memory, strict=True):
            torch.sub(w, start, out=out)
            torch.add(g, out, alpha=self.mu, out=out)
        return self.memory


class FedProx(Method):
    """Adds a term that pulls the parameters towards the received ones. Buffers are not affected."""

    def __init__(self, settings: FedProxSettings) -> None:
        self.mu = settings.mu

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """The correction mu (w - w^t)."""
        if self.mu == 0.0:
            return Plan()
        return Plan(corrections=(Pull(self.mu, job.copies(), job.zeros()),), proximal=self.mu)
