"""The client half of FedDisco (Ye et al., ICML 2023): how many examples of each class the client trains on.

Received: `feddisco.known`, ids of the clients whose counts the server has; left out if it has none. Reported by
the other clients: the metric `feddisco/labels`, one count for each class. Examples that are held out do not count.
A class with fewer examples than the site says something of (`min_rows`) is counted with the largest one.
"""

from __future__ import annotations

from fedstride.errors import ConfigError

from ..data.small_counts import label_counts
from ..training.method import Job, Method, Plan, Received, Result, Returned, State


class Half(Method):
    """FedDisco on the client."""

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """Training does not change. Raises ConfigError for a task without classes."""
        spec = job.examples.spec
        if not spec.classes:
            raise ConfigError("feddisco needs a task with classes: it compares counts of labels")
        self.known = job.client_id in received.values.get("known", [])
        return Plan()

    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """Report the counts if the server does not have them."""
        if self.known:
            return Returned(), {}
        counts = label_counts(job.examples.class_counts(), job.min_rows)
        return Returned(metrics={"feddisco/labels": counts.tolist()}), {}
