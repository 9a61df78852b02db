"""FedProx: F_k(w) + (mu/2) ||w - w^t||^2 (Li et al., MLSys 2020).

The gradient of each step becomes g + mu (w - w^t), where w^t is the received model (PX2). With mu = 0 no term is
added, so the result is bit-identical to FedAvg's.
"""

from __future__ import annotations

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
        return Plan(corrections=(self.correct,), proximal=self.mu)

    def correct(self, gradients: Tensors, parameters: Tensors) -> Tensors:
        """g + mu (w - w^t)."""
        return [
            g.add(w - start, alpha=self.mu) for g, w, start in zip(gradients, parameters, self.start, strict=True)
        ]
