"""A user's strategy, derived from Flower's FedAvg."""

from __future__ import annotations

from collections.abc import Iterable

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg


class Careful(FedAvg):
    """Takes half of the averaged step."""

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """As FedAvg; stores the model that is sent."""
        self.sent = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The model half way between the sent model and the mean."""
        mean, metrics = super().aggregate_train(server_round, replies)
        if mean is None:
            return None, metrics
        half = {name: (self.sent[name].numpy() + mean[name].numpy()) / 2 for name in mean}
        return ArrayRecord({name: Array(value.astype("float32")) for name, value in half.items()}), metrics
