"""The client half of FedNova (Wang et al., NeurIPS 2020): the effective number of local steps (NO1).

    x = v = 0;   at each step j:   v <- rho v + 1 - eta mu x,   x <- x + (eta_j / eta) v;   a_k = x

This is how often a constant gradient, taken at rate eta, is in w^t - w_k: with momentum rho, with a proximal term
mu inside the gradient (B-4), and with a rate eta_j of each step. Without them it is the number of steps. Factors
of single neurons do not count, because their mean in a layer is 1 (B-37). Weight decay does not count either.

Nothing is received. Reported: the metric `fednova/a`.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..training.method import Job, Method, Plan, Result, Returned, State


def effective_steps(factors: Iterable[float], *, momentum: float = 0.0, pull: float = 0.0) -> float:
    """a_k from the steps' factors eta_j / eta; `pull` is eta mu."""
    x = v = 0.0
    for factor in factors:
        v = momentum * v + 1.0 - pull * x
        x += factor * v
    return x


class Half(Method):
    """FedNova on the client."""

    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """Report a_k."""
        factors = [rate / job.lr if job.lr else 1.0 for rate in result.rates]
        mu = 0.0 if plan.pull is None else plan.pull.strength
        a = effective_steps(factors, momentum=job.client.momentum, pull=job.lr * mu)
        return Returned(metrics={"fednova/a": a}), {}
