"""The loop that a user would write for two cores: the floor of `rounds`. It writes no records and checks nothing.

Two forked processes, each with half of the clients (the longest first, each to the process with less to do), plain
torch on normalised tensors in memory, the mean of the models and the evaluation in the main process.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from fedstride import seeds
from fedstride.tasks import data
from fedstride.tasks.forms import memory_layout
from fedstride.tasks.models import networks_by_name
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.partitions import schemes
from server_app.config.schema import Config

WORKERS = 2


class Client(NamedTuple):
    """The examples of a client, prepared."""

    x: torch.Tensor
    y: torch.Tensor


class Work(NamedTuple):
    """What a run does, as tensors that are prepared."""

    clients: list[Client]
    test: Client
    network: nn.Module  # with its initial weights


def shared(value: torch.Tensor) -> torch.Tensor:
    """A copy in memory that forks of this process share."""
    copy: torch.Tensor = value.clone().share_memory_()  # type: ignore[no-untyped-call]
    return copy


def work(config: Config) -> Work:
    """The work of a run with this configuration."""
    source = data.load(config.task)
    parts = schemes.partition(config.partition, source.divisible, config.clients, config.seed)
    train_x, train_y = prepared(Examples(source.train_x, source.train_y, source.spec, device=torch.device("cpu")))
    clients = [Client(train_x[part], train_y[part]) for part in map(torch.from_numpy, map(np.array, parts))]
    test = prepared(Examples(source.test_x, source.test_y, source.spec, device=torch.device("cpu")))
    return Work(
        clients, test, networks_by_name.build(config.model, source.spec.inputs, source.spec.outputs, config.seed)
    )


def _laid(client: Client, placed: bool) -> Client:
    """With images in our layout, or in torch's usual one.

    They are copied: for torch, images of one channel have every layout, so only new memory has the usual strides.
    """
    if client.x.dim() != 4:
        return client
    return Client(
        memory_layout.as_images(client.x) if placed else torch.empty(client.x.shape).copy_(client.x), client.y
    )


def prepared(examples: Examples) -> Client:
    """All examples, normalised."""
    return Client(*(tensor.contiguous() for tensor in examples.batch(np.arange(len(examples)))))


class Plain:
    """The loop.

    `network`: one to use instead of that of the configuration. `placed`: with our layout of images and filters in
    memory, and not with torch's usual one.
    """

    def __init__(self, config: Config, network: nn.Module | None = None, *, placed: bool = False) -> None:
        clients, test, default_network = work(config)
        self._clients, self._test = [_laid(client, placed) for client in clients], _laid(test, placed)
        self._network = default_network if network is None else network
        if placed:
            self._network = memory_layout.place(self._network, torch.device("cpu"))
        self._weights = {name: shared(value) for name, value in self._network.state_dict().items()}
        self._results = [{name: shared(value) for name, value in self._weights.items()} for _ in self._clients]
        self._config = config
        self._round = 0
        self._pipes: list[Connection] = []
        self._processes: list[Any] = []

    def __enter__(self) -> Plain:
        torch.set_num_threads(1)
        context = multiprocessing.get_context("fork")
        for _ in range(WORKERS):
            mine, other = context.Pipe()
            process = context.Process(target=self._serve, args=(other,), daemon=True)
            process.start()
            self._pipes.append(mine)
            self._processes.append(process)
        self.round()
        return self

    def __exit__(self, *details: Any) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()

    def round(self) -> None:
        """One round: training in the processes, mean and evaluation here."""
        self._round += 1
        for pipe, clients in zip(self._pipes, self._halves(), strict=True):
            pipe.send((self._round, clients))
        for pipe in self._pipes:
            pipe.recv()
        total = sum(len(client.y) for client in self._clients)
        for name, weights in self._weights.items():
            weights.zero_()
            for client, result in zip(self._clients, self._results, strict=True):
                weights.add_(result[name], alpha=len(client.y) / total)
        self._evaluate()

    def _halves(self) -> list[list[int]]:
        """The clients of each process."""
        shares: list[list[int]] = [[] for _ in range(WORKERS)]
        work = [0] * WORKERS
        for client in sorted(range(len(self._clients)), key=lambda k: -len(self._clients[k].y)):
            least = work.index(min(work))
            shares[least].append(client)
            work[least] += len(self._clients[client].y)
        return shares

    def _serve(self, pipe: Connection) -> None:
        torch.set_num_threads(1)
        while (asked := pipe.recv()) is not None:
            server_round, clients = asked
            for client in clients:
                self._train(server_round, client)
            pipe.send(None)

    def _train(self, server_round: int, client: int) -> None:
        settings, (x, y) = self._config.client, self._clients[client]
        self._network.load_state_dict(self._weights)
        self._network.train()
        optimiser = torch.optim.SGD(self._network.parameters(), lr=settings.lr)
        order = torch.from_numpy(seeds.generator(1, "batches", server_round, client).permutation(len(y)))
        for chosen in order.split(settings.batch_size):  # type: ignore[no-untyped-call]
            optimiser.zero_grad()
            nn.functional.cross_entropy(self._network(x[chosen]), y[chosen]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        for name, value in self._network.state_dict().items():
            self._results[client][name].copy_(value)

    @torch.no_grad()
    def _evaluate(self) -> tuple[float, float]:
        self._network.load_state_dict(self._weights)
        self._network.eval()
        loss, right = 0.0, 0
        for x, y in zip(self._test.x.split(250), self._test.y.split(250), strict=True):  # type: ignore[no-untyped-call]
            logits = self._network(x)
            loss += float(nn.functional.cross_entropy(logits, y, reduction="sum"))
            right += int((logits.argmax(1) == y).sum())
        return loss / len(self._test.y), right / len(self._test.y)
