"""Sending messages and receiving replies: duplicate replies, late replies, rejected messages."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np
from flwr.app import ConfigRecord, Message, MessageType, RecordDict

from fedstride.arrays.named import to_record
from fedstride.flower import identity
from fedstride.messages.packed_arrays import is_packed
from lab.engine.local_grid import LocalGrid
from server_app.exchange import sending as module
from server_app.exchange.sending import CohortGrid, exchange, send
from server_app.exchange.timeouts import Fixed

identity.set_identity()


class Clock:
    """A clock whose time passes only during `sleep`."""

    def __init__(self, monkeypatch: Any) -> None:
        self.now = 0.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(module.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Scripted(LocalGrid):
    """A Grid with replies at given times: {node: [seconds, ...]}. A node without an entry never replies."""

    def __init__(self, clock: Clock, arrivals: dict[int, list[float]], rejected: Iterable[int] = ()) -> None:
        self.clock, self.arrivals, self.rejected = clock, arrivals, set(rejected)
        self.sent: dict[str, Message] = {}

    def push_messages(self, messages: Iterable[Message]) -> list[Any]:
        ids = []
        for message in messages:
            if message.metadata.dst_node_id in self.rejected:
                ids.append(None)
                continue
            ids.append(identity.stamp(message))
            self.sent[ids[-1]] = message
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = []
        for message in self.sent.values():
            due = self.arrivals.get(message.metadata.dst_node_id, [])
            while due and due[0] <= self.clock.now:
                due.pop(0)
                replies.append(Message(RecordDict(), reply_to=message))
        return replies


def to(*nodes: int) -> list[Message]:
    return [Message(RecordDict(), dst_node_id=node, message_type=MessageType.TRAIN) for node in nodes]


def test_exchange_returns_all_replies_by_node(monkeypatch) -> None:
    clock = Clock(monkeypatch)
    heard: list[tuple[list[int], int, int]] = []
    replies = exchange(
        Scripted(clock, {2: [0.0], 3: [7.0]}),
        to(2, 3),
        patience=Fixed(60),
        on_replies=lambda *seen: heard.append(seen),
    )
    assert set(replies) == {2, 3}
    assert heard == [([2], 1, 2), ([3], 2, 2)]
    assert 7.0 <= clock.now < 7.3


def test_late_replies_are_absent(monkeypatch) -> None:
    clock = Clock(monkeypatch)
    assert set(exchange(Scripted(clock, {2: [1.0], 3: [99.0]}), to(2, 3, 4), patience=Fixed(30))) == {2}
    assert 30.0 <= clock.now < 30.3


def test_a_second_reply_does_not_count(monkeypatch) -> None:
    heard: list[tuple[list[int], int, int]] = []
    grid = Scripted(Clock(monkeypatch), {2: [0.0, 0.0, 1.0], 3: [2.0]})
    replies = exchange(grid, to(2, 3), patience=Fixed(30), on_replies=lambda *seen: heard.append(seen))
    assert len(replies) == 2
    assert heard == [([2], 1, 2), ([3], 2, 2)]


def test_a_rejected_message_is_not_waited_for(monkeypatch) -> None:
    clock = Clock(monkeypatch)
    assert set(exchange(Scripted(clock, {2: [0.0]}, rejected=[3]), to(2, 3), patience=Fixed(30))) == {2}
    assert clock.now < 1.0


def test_an_exchange_without_messages(monkeypatch) -> None:
    assert exchange(Scripted(Clock(monkeypatch), {}), [], patience=Fixed(30)) == {}


class HttpGrid(LocalGrid):
    """A Grid with the name of that of a deployment. It keeps what it was given to send."""

    _runtime_client = node = None
    run: Any = SimpleNamespace(run_id=1)

    def __init__(self) -> None:
        self.pushed: list[RecordDict] = []

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        self.pushed = [message.content for message in messages]
        return [str(k) for k in range(len(self.pushed))]


def test_on_a_deployment_nodes_that_understand_it_get_a_packed_model() -> None:
    model, grid = to_record({"w": np.ones(3), "b": np.zeros(1)}), HttpGrid()
    messages = to(1, 2, 3)
    for message in messages:
        message.content = RecordDict({"arrays": model, "config": ConfigRecord()})
    waiting = send(grid, messages, unpacking={1, 3})
    assert [is_packed(content["arrays"]) for content in grid.pushed] == [True, False, True]
    assert grid.pushed[0]["arrays"] is grid.pushed[2]["arrays"]
    assert list(waiting.values()) == messages
    assert all(message.content["arrays"] is model for message in messages)


def test_elsewhere_no_model_is_packed(monkeypatch) -> None:
    model, grid = to_record({"w": np.ones(3)}), Scripted(Clock(monkeypatch), {})
    (message,) = to(1)
    message.content = RecordDict({"arrays": model})
    monkeypatch.setattr(module.Packer, "packed", None)
    send(grid, [message], unpacking={1})


def test_a_cohort_is_all_that_a_strategy_sees() -> None:
    inner = LocalGrid(lambda message, context: None, 5)  # type: ignore[arg-type, return-value]
    assert CohortGrid(inner, [3, 2]).get_node_ids() == [3, 2]
