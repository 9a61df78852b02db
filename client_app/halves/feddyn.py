"""The client half of FedDyn (Acar et al., ICLR 2021), in the form of the authors' code (B-9).

    min  F_k(w) + (alpha/2) ||w - w^t||^2 + alpha <u_k, w>                             (DY1)
    step gradient  g(w) + alpha (w - w^t) + alpha u_k                                  (DY2)
    u_k <- u_k + (w_k - w^t)                              after the last step          (DY3)

Both terms together are a pull: alpha (w - (w^t - u_k)). The paper's memory is -alpha u_k; this form never divides
by alpha. With alpha = 0 no term is added, so the result is bit-identical to FedAvg's.

Received: `feddyn.alpha`, in loss per squared parameter unit. Nothing is returned. u_k has the shapes of the
trainable parameters; it is zero at the start, and again if the client's state was lost.
"""

from __future__ import annotations

import math

import torch

from fedstride.errors import ConfigError

from ..method import Job, Method, Plan, Received, Result, Returned, State
from ..pieces import Pull


class Half(Method):
    """FedDyn on the client."""

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """The pull alpha (w - (w^t - u_k))."""
        alpha = _checked(received.value("alpha"))
        self.start = job.copies()
        self.memory = job.tensors(state, "the state of feddyn") if state else job.zeros()
        if not alpha:
            return Plan()
        return Plan(pull=Pull(alpha, [start - u for start, u in zip(self.start, self.memory, strict=True)]))

    @torch.no_grad()
    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """Keep u_k + (w_k - w^t) as the new u_k."""
        parts = zip(self.memory, job.parameters.values(), self.start, strict=True)
        return Returned(), job.arrays([u.double() + (w.double() - start.double()) for u, w, start in parts])


def _checked(alpha: object) -> float:
    if isinstance(alpha, (int, float)) and not isinstance(alpha, bool) and 0.0 <= alpha < math.inf:
        return float(alpha)
    raise ConfigError(f"feddyn.alpha = {alpha!r} is not allowed: alpha must be a finite number of at least 0")
