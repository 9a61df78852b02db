"""The app's clients, in numpy: each moves half of the way to its own point."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

TARGETS = np.array([[1.0, 0.0], [0.0, 2.0], [-1.0, 1.0]], dtype=np.float32)

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """One step towards this client's point."""
    k = int(context.node_config["partition-id"])
    w = message.content["arrays"]["layer.weight"].numpy()
    arrays = ArrayRecord({"layer.weight": Array(w + np.float32(0.5) * (TARGETS[k] - w))})
    return Message(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": 10})}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """The distance to this client's point."""
    k = int(context.node_config["partition-id"])
    far = float(np.linalg.norm(message.content["arrays"]["layer.weight"].numpy() - TARGETS[k]))
    return Message(RecordDict({"m": MetricRecord({"num-examples": 10, "distance": far})}), reply_to=message)
