"""The client half of FedDyn (Acar et al., ICLR 2021), in the form of the authors' code (B-9).

    min  F_k(w) + (alpha/2) ||w - w^t||^2 + alpha <u_k, w>                             (DY1)
    step gradient  g(w) + alpha (w - w^t) + alpha u_k                                  (DY2)
    u_k <- u_k + (w_k - w^t)                              after the last step          (DY3)

Both terms together are a pull: alpha (w - (w^t - u_k)). The paper's memory is -alpha u_k; this form never divides
by alpha. With alpha = 0 no term is added, so the result is bit-identical to FedAvg's.

Received: `feddyn.alpha`, in loss per squared parameter unit; `feddyn.names`, the parameters of which the server
asks for u_k, missing if it asks for none; and `feddyn.restarts`, how often all memories restarted from zero,
missing if never. Returned: for these parameters the arrays `feddyn.client_memory`, u_k after the round, in the
model's dtypes; zeros for what is not trained. u_k has the shapes of the trainable parameters; it is zero at the
start, and again if the client's state was lost, or is from before the last restart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch

from fedstride.arrays.named import host
from fedstride.errors import ConfigError
from fedstride.plain_numbers import is_number

from ..training.method import Job, Method, Plan, Received, Result, Returned, State
from ..training.stackable_parts import Pull

RESTARTS = "restarts of feddyn"
"""In the state: how often all memories had restarted from zero; missing if never. No parameter has such a name."""


class Half(Method):
    """FedDyn on the client."""

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """The pull alpha (w - (w^t - u_k))."""
        alpha = _checked(received.value("alpha"))
        self.names = received.values.get("names")
        self.frozen = _frozen(job, self.names) if self.names is not None else {}
        self.start = job.copies()
        self.restarts = received.values.get("restarts", 0)
        known = {name: array for name, array in state.items() if name != RESTARTS}
        is_valid = known and state.get(RESTARTS, 0) == self.restarts
        self.memory = job.tensors(known, "the state of feddyn") if is_valid else job.zeros()
        if not alpha:
            return Plan()
        return Plan(pull=Pull(alpha, [start - u for start, u in zip(self.start, self.memory, strict=True)]))

    @torch.no_grad()
    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """Keep u_k + (w_k - w^t) as the new u_k, and return it if the server asks for it."""
        parts = zip(self.memory, job.parameters.values(), self.start, strict=True)
        kept = job.arrays([u.double() + (w.double() - start.double()) for u, w, start in parts])
        state: State = {**kept, RESTARTS: self.restarts} if self.restarts else kept
        if self.names is None:
            return Returned(), state
        known = {**self.frozen, **kept}
        return Returned(arrays={"client_memory": {name: known[name] for name in self.names}}), state


def _frozen(job: Job, names: object) -> Mapping[str, np.ndarray]:
    """Zeros for those of these arrays that are not trained. The server does not know which are."""
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError("feddyn.names is not allowed: it must be a list of names")
    arrays = job.model.state_dict()
    unknown = next((name for name in names if name not in arrays), None)
    if unknown is not None:
        raise ConfigError(
            f"feddyn.names does not fit this client's network: it has no {unknown!r}; server and clients must "
            "build the same model"
        )
    return {name: np.zeros_like(host(arrays[name])) for name in names if name not in job.parameters}


def _checked(alpha: object) -> float:
    if is_number(alpha) and 0.0 <= alpha < math.inf:
        return float(alpha)
    raise ConfigError(f"feddyn.alpha = {alpha!r} is not allowed: alpha must be a finite number of at least 0")
