"""The client half of SCAFFOLD (Karimireddy et al., ICML 2020), option II.

    w <- OPT(w, g(w)),  then  w <- w - eta (c - c_k)      in each step                 (SC1)
    c_k+ = c_k - c + (w^t - w_k) / H_k                    after the last step          (SC2)
    c_k+ or delta_k = c_k+ - c_k                          is returned, c_k+ is kept

H_k is the sum of the rates over all executed steps, separately for each element (B-37); if H_k = 0 for an element,
c_k+ = c_k. The correction is a separate displacement after the optimiser's step, so momentum does not amplify it
(B-15), and c_k+ is the mean direction of the optimiser.

Received: the arrays `scaffold.control`, c, and `scaffold.recover`, which is left out for false. Returned: with it
the arrays `scaffold.client_control`, c_k+, without it `scaffold.delta`. All contain one array for each trainable
parameter, in the model's dtype. c_k is zero at the start, and again if the client's state was lost.
"""

from __future__ import annotations

import numpy as np
import torch

from ..training.method import Job, Method, Plan, Received, Result, Returned, State


class Half(Method):
    """SCAFFOLD on the client."""

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """The displacement c - c_k."""
        self.start = job.copies()
        self.recover = received.values.get("recover") is True
        sent = received.array("control")
        # The server does not know which parameters are frozen. They have no control; zeros are returned for them.
        self.frozen = {name: np.zeros_like(array) for name, array in sent.items() if name not in job.parameters}
        trained = {name: array for name, array in sent.items() if name in job.parameters}
        self.control = job.tensors(trained, "scaffold.control")
        self.own = job.tensors(state, "the state of scaffold") if state else job.zeros()
        return Plan(displacement=[c - c_k for c, c_k in zip(self.control, self.own, strict=True)])

    @torch.no_grad()
    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """Return c_k+ or delta_k, and keep c_k+."""
        after, rates = [], result.rate_sum
        parts = zip(job.parameters.values(), self.start, self.control, self.own, strict=True)
        for i, (w, start, c, c_k) in enumerate(parts):
            H = rates * plan.neuron_factors.get(i, torch.ones((), device=w.device)).double()
            new = c_k.double() - c.double() + (start.double() - w.double()) / H
            # Rounded before the difference is taken: the server's c must be the mean of the values clients keep.
            after.append(torch.where(H == 0.0, c_k, new.to(w.dtype)))
        if self.recover:
            return Returned(arrays={"client_control": {**job.arrays(after), **self.frozen}}), job.arrays(after)
        delta = [new.double() - old.double() for new, old in zip(after, self.own, strict=True)]
        return Returned(arrays={"delta": {**job.arrays(delta), **self.frozen}}), job.arrays(after)
