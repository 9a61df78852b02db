"""The client half of q-FedAvg (Li et al., ICLR 2020): the loss of the received model on the client's data (B-27).

Nothing is received. Reported: the metric `q_fedavg/loss`, the mean loss over all training examples, before
training and in eval mode. This is one more pass over the data.
"""

from __future__ import annotations

from fedstride.tasks.evaluation.measuring import evaluate

from ..training.method import Job, Method, Plan, Received, Result, Returned, State


class Half(Method):
    """q-FedAvg on the client."""

    def begin(self, job: Job, received: Received, state: State) -> Plan:
        """Measure the loss; training does not change."""
        self.loss = evaluate(job.model, job.examples).loss
        return Plan()

    def end(self, job: Job, plan: Plan, result: Result) -> tuple[Returned, State]:
        """Report the loss."""
        return Returned(metrics={"q_fedavg/loss": self.loss}), {}
