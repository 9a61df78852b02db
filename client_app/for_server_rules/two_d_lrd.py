"""The client half of 2D-LRD: sets the number of mini-batches of a round and the rate of each (A4-4 to A4-6).

    eta_j = eta_0 f_j,   j = 0 .. tau - 1

Received: `two_d_lrd.rate_factors`, the f_j. The client keeps only its position in its data; the detector is on the
server.
"""

from __future__ import annotations

import math

from fedstride.errors import ConfigError
from fedstride.plain_numbers import is_number

from ..training.cursor_batches import following
from ..training.method import Job, Method, Plan, Received, Result, Returned, State


class Half(Method):
    """2D-LRD on the client."""

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """The plan: tau mini-batches from the cursor on, each with its factor."""
        factors = _checked(received.value("rate_factors"))
        batches, self.after = following(job, state, len(factors))
        return Plan(step_factors=factors, batches=batches)

    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """Keep the cursor."""
        return Returned(), self.after


def _checked(sent: object) -> list[float]:
    if isinstance(sent, list) and sent and all(_is_factor(factor) for factor in sent):
        return [float(factor) for factor in sent]
    raise ConfigError(
        f"two_d_lrd.rate_factors = {sent!r} is not allowed: it must be a list of one or more factors, "
        "each a finite number of at least 0"
    )


def _is_factor(value: object) -> bool:
    return is_number(value) and 0.0 <= value < math.inf
