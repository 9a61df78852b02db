"""FedProx: F_k(w) + (mu/2) ||w - w^t||^2 (Li et al., MLSys 2020).

The gradient of each step becomes g + mu (w - w^t), where w^t is the received model (PX2). With mu = 0 no term is
added, so the result is bit-identical to FedAvg's.
"""

from __future__ import annotations

from ..registry import FedProxSettings
from ..training.method import Job, Method, Plan, Received, State
from ..training.stackable_parts import Pull


class FedProx(Method):
    """Adds a term that pulls the parameters towards the received ones. Buffers are not affected."""

    def __init__(self, settings: FedProxSettings) -> None:
        self.mu = settings.mu

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """The pull mu (w - w^t)."""
        return Plan(pull=Pull(self.mu, job.copies()) if self.mu else None)
