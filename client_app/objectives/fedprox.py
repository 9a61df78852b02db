"""FedProx: F_k(w) + (mu/2) ||w - w^t||^2 (Li et al., MLSys 2020).

The gradient of each step becomes g + mu (w - w^t), with w^t as it was received (PX2). With mu = 0 the term is
left out, so that the result has FedAvg's bits.
"""

from __future__ import annotations

from ..method import Job, Method, Plan, Received, State, Tensors
from ..parts import FedProxSettings


class FedProx(Method):
    """A pull towards the received parameters; buffers are not pulled."""

    def __init__(self, settings: FedProxSettings) -> None:
        self.mu = settings.mu

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """The correction mu (w - w^t)."""
        if self.mu == 0.0:
            return Plan()
        self.start = job.copies()
        return Plan(corrections=(self.correct,))

    def correct(self, gradients: Tensors, parameters: Tensors) -> Tensors:
        """g + mu (w - w^t)."""
        return [
            g.add(w - start, alpha=self.mu) for g, w, start in zip(gradients, parameters, self.start, strict=True)
        ]
