"""The page on clients of one's own keeps its word: its snippet obeys 2D-LRD, in Flower's own loop."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from federation import MemoryGrid
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from strategies import FedAvg, TwoDLRD

PAGE = Path(__file__).parents[2] / "docs/own-parts.md"
(SNIPPET,) = re.findall(r"```python\n(@app\.train\(\)\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
RATE, STEPS, ROUNDS = 1.3, 3, 8  # a rate beyond the minimum, so that rounds turn back and the detector sees it


class Client:
    """What the page calls yours: a weight that is drawn to 1, and the rates of its steps, round by round."""

    def __init__(self) -> None:
        self.w = np.zeros(1)
        self.rates: list[list[float]] = []
        self.app = ClientApp()

    def load(self, arrays: ArrayRecord) -> None:
        self.w = arrays["w"].numpy()
        self.rates.append([])

    def step(self, batch: int, rate: float) -> None:
        self.rates[-1].append(rate)
        self.w = self.w - rate * (self.w - 1.0)

    def weights(self) -> ArrayRecord:
        return ArrayRecord({"w": Array(self.w)})

    def run(self, snippet: str) -> None:
        """The snippet, with all that it says is its reader's."""
        yours: dict[str, Any] = {"app": self.app, "RATE": RATE, "EXAMPLES": 7, "batches": itertools.count}
        yours |= {"load": self.load, "step": self.step, "weights": self.weights}
        exec(snippet, yours | {"Message": Message, "MetricRecord": MetricRecord, "RecordDict": RecordDict})


class AppGrid(MemoryGrid):
    """Hands each message to the app of its node."""

    def __init__(self, apps: dict[int, ClientApp]) -> None:
        super().__init__(apps)
        self.apps = apps

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> list[Message]:
        context = Context(run_id=1, node_id=2, node_config={}, state=RecordDict(), run_config={})
        return [self.apps[message.metadata.dst_node_id](message, context) for message in messages]


def start(*snippets: str, strategy: Any = None) -> tuple[list[Client], list[MetricRecord]]:
    """Flower's own loop over clients that run these snippets; the metrics of the rounds."""
    clients = [Client() for _ in snippets]
    for client, snippet in zip(clients, snippets, strict=True):
        client.run(snippet)
    if strategy is None:
        held = FedAvg(fraction_evaluate=0.0, min_available_nodes=1, min_train_nodes=1)
        strategy = TwoDLRD(held, attenuation=0.4, window=1, local_steps=STEPS)
    result = strategy.start(
        grid=AppGrid({7 + i: client.app for i, client in enumerate(clients)}),
        initial_arrays=ArrayRecord({"w": Array(np.array([3.0]))}),
        num_rounds=ROUNDS,
    )
    rounds = result.train_metrics_clientapp
    return clients, [rounds[number] for number in sorted(rounds)]


def test_the_snippet_is_ten_lines() -> None:
    lines = [line for line in SNIPPET.splitlines() if line.strip()]
    assert len(lines) - 2 <= 10  # beside the two that begin any such function


def test_the_snippet_obeys() -> None:
    clients, rounds = start(SNIPPET, SNIPPET)
    assert [metrics["screening/not_done"] for metrics in rounds] == [0] * ROUNDS
    reported = [[1.0] * STEPS] + [metrics["two_d_lrd/rates"] for metrics in rounds[:-1]]
    for client in clients:
        assert client.rates == [pytest.approx([RATE * factor for factor in factors]) for factors in reported]
    assert len(reported[-1]) == 1  # the detector has switched, and the clients have followed


def test_clients_without_it_are_counted() -> None:
    deaf = SNIPPET.replace('"two_d_lrd" in', '"nothing of that" in')
    clients, rounds = start(SNIPPET, deaf, deaf)
    assert [metrics["screening/not_done"] for metrics in rounds] == [2] * ROUNDS
    assert clients[1].rates == [[RATE] * 10] * ROUNDS


def test_the_snippet_serves_other_rules_too() -> None:
    clients, rounds = start(
        SNIPPET, strategy=FedAvg(fraction_evaluate=0.0, min_available_nodes=1, min_train_nodes=1)
    )
    assert clients[0].rates == [[RATE] * 10] * ROUNDS
    assert "screening/not_done" not in rounds[0]
