"""What a round's aggregation costs the server: 20 replies of a ResNet-18, from Messages to the returned record.

The floor is one copy of all the replies' bytes into memory that was written before, timed before each call. All
strategies have their default screening and diagnostics. Each call is that of a second round, so that a rule has
its state; Flower's FedAvg, which has no screening, is timed beside them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol
from unittest import mock

import flwr.serverapp.strategy as flower_strategies
import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from benchmarks import Measured, seconds
from fedstride.arrays.named import Arrays, to_record, views
from fedstride.flower import identity
from fedstride.messages import wire
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models import networks_by_name, tensors
from fedstride.tasks.registry import MODELS
from strategies import Fedalr, FedAvg, FedDyn, FedLWS, FedNNNN, NormAnalysis, Scaffold, TwoDLRD
from strategies.sums import kernels

CLIENTS = 20
FLOOR = f"one copy of the bytes of {CLIENTS} replies of a ResNet-18"

OPEN: dict[str, Any] = {"min_train_nodes": 1, "min_evaluate_nodes": 1, "min_available_nodes": 1}

STRATEGIES: dict[str, Callable[[], Strategy]] = {
    "Flower FedAvg": lambda: flower_strategies.FedAvg(**OPEN),
    "FedAvg": lambda: FedAvg(**OPEN),
    "FedNNNN": lambda: FedNNNN(**OPEN),
    "Fedalr": lambda: Fedalr(**OPEN),
    "FedLWS": lambda: FedLWS(FedAvg(**OPEN)),
    "2D-LRD": lambda: TwoDLRD(FedAvg(weighting="uniform", **OPEN)),
    "NormAnalysis of FedNNNN": lambda: NormAnalysis(FedNNNN(**OPEN)),
    "FedDyn": lambda: FedDyn(num_clients=CLIENTS, recover=False, **OPEN),
    "SCAFFOLD": lambda: Scaffold(num_clients=CLIENTS, recover=False, **OPEN),
}
"""SCAFFOLD reads twice the bytes of the floor: its clients return a second set of arrays."""

TWICE = ("FedAvg", "FedNNNN", "Fedalr", "FedLWS")
"""Also timed without the compiled sums of the extra `fast`. Without that extra, both are the same."""


def timings(repeats: int, only: str = "", model: Arrays | None = None) -> Iterator[Measured]:
    """Each strategy's `aggregate_train` in turn, `repeats` times; `model` in place of the ResNet-18, for tests."""
    identity.set_identity()
    model = resnet18() if model is None else model
    replies = [to_record(noisy(model, client)) for client in range(CLIENTS)]
    chosen = {name: make for name, make in STRATEGIES.items() if only in name}
    rounds = {name: Round(make(), model, replies) for name, make in chosen.items()}
    calls: dict[str, Call] = rounds | {
        f"{name}, numpy alone": NumpyAlone(rounds[name]) for name in TWICE if name in rounds
    }
    into = {name: np.zeros_like(array) for name, array in model.items()}
    read = [views(reply) for reply in replies]

    def copy() -> None:
        for reply in read:
            for name, array in reply.items():
                np.copyto(into[name], array)

    copy()
    for _ in range(repeats):
        for name, call in calls.items():
            floor = seconds(copy)
            yield Measured(name, seconds(call), floor)


class Call(Protocol):
    """What is timed."""

    def __call__(self) -> None:
        """Aggregate a round."""


class NumpyAlone:
    """The same aggregation without compiled sums."""

    def __init__(self, inner: Call) -> None:
        self.inner = inner

    def __call__(self) -> None:
        """Aggregate a round."""
        with mock.patch.object(kernels, "WORTH_COMPILING", math.inf):
            self.inner()


class Round:
    """A strategy after its first round; a call is the aggregation of the second."""

    def __init__(self, strategy: Strategy, model: Arrays, replies: list[ArrayRecord]) -> None:
        self.strategy = strategy
        self.replies = replies
        record, _ = self._aggregate(1, to_record(model))
        self.messages = self._messages(2, record)

    def __call__(self) -> None:
        """Aggregate a round."""
        record, metrics = self.strategy.aggregate_train(2, self.messages)
        assert record is not None and metrics is not None

    def _aggregate(self, server_round: int, sent: Any) -> tuple[Any, Any]:
        return self.strategy.aggregate_train(server_round, self._messages(server_round, sent))

    def _messages(self, server_round: int, sent: Any) -> list[Message]:
        """The replies to what the strategy sends to its clients."""
        asked = list(self.strategy.configure_train(server_round, sent, ConfigRecord(), Nodes()))
        return [answer(message, reply) for message, reply in zip(asked, self.replies, strict=True)]


def answer(asked: Message, model: ArrayRecord) -> Message:
    """A reply with this model, and with the second set of arrays where SCAFFOLD asks for one."""
    content: dict[str, Any] = {wire.ARRAYS: model}
    control = wire.of_half("scaffold", "control")
    if control in asked.content:
        names = asked.content.array_records[control]
        content[wire.of_half("scaffold", "delta")] = ArrayRecord({name: model[name] for name in names})
    (config,) = asked.content.config_records.values()
    halves: Any = config.get(wire.HALVES, [])
    reported: dict[str, Any] = {wire.done(half): 1 for half in halves}
    reported |= {wire.NUM_EXAMPLES: 500 + asked.metadata.dst_node_id, "loss": 1.0}
    content[wire.METRICS] = MetricRecord(reported)
    return Message(RecordDict(content), reply_to=asked)


class Nodes(Grid):
    """Names the nodes; nothing is sent."""

    def get_node_ids(self) -> list[int]:
        """One node for each client."""
        return list(range(1, CLIENTS + 1))

    def set_run(self, run: Any) -> None:
        """Not used."""

    @property
    def run(self) -> Any:
        """Not used."""
        raise NotImplementedError

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        """Not used."""
        raise NotImplementedError

    def push_messages(self, messages: Any) -> Any:
        """Not used."""
        raise NotImplementedError

    def pull_messages(self, message_ids: Any) -> Any:
        """Not used."""
        raise NotImplementedError

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        """Not used."""
        raise NotImplementedError


def resnet18() -> Arrays:
    """The arrays of an untrained ResNet-18 for 1,000 classes: 11.7 million parameters."""
    inputs = Inputs(Kind.IMAGE, (3, 224, 224))
    return tensors.to_arrays(networks_by_name.build(MODELS.config("resnet18")(), inputs, 1000, seed=1))


def noisy(model: Arrays, client: int) -> Arrays:
    """The model with noise of 1 % of each array's largest value."""
    rng = np.random.default_rng(client)

    def near(array: Any) -> Any:
        if array.dtype.kind != "f":
            return array + 1
        return array + np.float32(0.01 * abs(array).max()) * rng.standard_normal(array.shape, array.dtype)

    return {name: near(array) for name, array in model.items()}
