"""The client's half of 2D-LRD: how many mini-batches a round has, and the rate of each (A4-4 to A4-6).

    eta_j = eta_0 f_j,   j = 0 .. tau - 1

Received: `two_d_lrd.rate_factors`, the f_j. The client keeps where it stands in its data, nothing else; the
detector is the server's.
"""

from __future__ import annotations

import math

from fedstride.errors import ConfigError

from ..local_steps import following
from ..method import Job, Method, Plan, Received, Result, Returned, State


class Half(Method):
    """2D-LRD on the client."""

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """tau mini-batches from the cursor, each with its factor."""
        factors = _checked(received.value("rate_factors"))
        batches, self.after = following(job, state, len(factors))
        return Plan(step_factors=factors, batches=batches)

    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """The cursor stays."""
        return Returned(), self.after


def _checked(sent: object) -> list[float]:
    if isinstance(sent, list) and sent and all(_is_factor(each) for each in sent):
        return [float(each) for each in sent]
    raise ConfigError(
        f"two_d_lrd.rate_factors = {sent!r} is not allowed: a list of at least one factor is, "
        "each a finite number of at least 0"
    )


def _is_factor(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0.0 <= value < math.inf
