"""A user-defined figure: the mean cost of decisions, where a missed case costs more than a false alarm.

fedstride run parts=examples/own_metric.py 'task.metrics=[cost]' task=breast_cancer model=mlp partition=iid
"""

import numpy as np

from fedstride import Figure, part


@part(metric="cost")
class Cost(Figure):
    """Mean cost of a decision: 5 for a missed case of class 1, 1 for a false alarm."""

    better = "smaller"
    predicts = ("class",)

    def state(self, outputs, targets):
        """Sums over a client's rows; the server adds those of all clients."""
        predicted = outputs.argmax(1)
        missed, alarms = (targets == 1) & (predicted != 1), (targets != 1) & (predicted == 1)
        return {"missed": np.count_nonzero(missed), "alarms": np.count_nonzero(alarms), "rows": len(targets)}

    def value(self, state):
        """The figure of all clients' rows together."""
        return (5.0 * state["missed"] + state["alarms"]) / state["rows"]
