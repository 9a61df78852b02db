"""What a round of ten clients costs on this machine, from messages to the evaluated model.

The floor is the loop that a user would write for two cores: two forked processes, each with half of the clients
(the longest first, each to the process with less to do), plain torch on normalised tensors in memory, the mean of
the models and the evaluation in the main process. It writes no records and checks nothing.

One round each of floor and ours in turn. "one process" is `workers=0`.
"""

from __future__ import annotations

import copy
import multiprocessing
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from benchmarks import Measured, seconds
from client_app.app import app
from fedstride import seeds
from fedstride.tasks import data, models, partitions
from fedstride.tasks.tensors import Examples
from lab.engine.engine import engine
from server_app import session
from server_app.config.compose import compose
from server_app.config.schema import Config
from server_app.rounds import Round

WORKERS = 2
FLOOR = f"a round of a plain loop in {WORKERS} forked processes"
CASES = {
    "quickstart, 431,080 parameters": ["model=cnn_mnist"],
    "LeNet-5, 61,706": ["model=lenet5"],
    "LEAF's CNN, 1,690,046": ["model=cnn_emnist"],
    "MLP, 159,010": ["model=mlp"],
}
FOREVER = 1_000_000  # rounds


def timings(repeats: int, only: str = "") -> Iterator[Measured]:
    """Each case with workers and in one process, `repeats` rounds after the first."""
    for name, overrides in CASES.items():
        if only not in name:
            continue
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            config = compose(
                [*overrides, "strategy=fedavg", f"rounds={FOREVER}", f"out='{folder}'", "client.device=cpu"]
            )
            floor = stack.enter_context(Plain(config))
            runs = {
                f"{name}: {label}": stack.enter_context(Ours(config, workers))
                for label, workers in (("workers", WORKERS), ("one process", 0))
            }
            for _ in range(repeats):
                for label, run in runs.items():
                    yield Measured(label, seconds(run.round), seconds(floor.round))


class Ours:
    """A run that does one round when it is told to."""

    def __init__(self, config: Config, workers: int) -> None:
        self._config, self._workers = config, workers
        self._go, self._done = threading.Semaphore(0), threading.Semaphore(0)
        self._ends = False
        self._stack = ExitStack()

    def __enter__(self) -> Ours:
        name = f"workers{self._workers}"
        prepared = session.prepare(compose_again(self._config, name))
        desk = self._stack.enter_context(engine(app, prepared, self._workers))
        grid = desk.grid(prepared.config)

        def run() -> None:
            with suppress(KeyboardInterrupt):
                session.run(
                    grid,
                    prepared,
                    evaluate=desk.evaluate(),
                    observers=[self],
                    on_folder=grid.keep_client_states_in,
                )

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()
        self._done.acquire()  # round 0
        self.round()
        return self

    def __exit__(self, *details: Any) -> None:
        self._ends = True
        self._go.release()
        self._thread.join()
        self._stack.close()

    def round(self) -> None:
        """Do one round."""
        self._go.release()
        self._done.acquire()

    def replied(self, server_round: int, done: int, total: int) -> None:
        """Do nothing."""

    def round_done(self, done: Round) -> None:
        """Wait for the next call of `round`."""
        self._done.release()
        self._go.acquire()
        if self._ends:
            raise KeyboardInterrupt


def compose_again(config: Config, name: str) -> Config:
    """The configuration with this name for its folder."""
    found = copy.copy(config)
    found.name = name
    return found


class Client(NamedTuple):
    """The examples of a client, prepared."""

    x: torch.Tensor
    y: torch.Tensor


def shared(value: torch.Tensor) -> torch.Tensor:
    """A copy in memory that forks of this process share."""
    found: torch.Tensor = value.clone().share_memory_()  # type: ignore[no-untyped-call]
    return found


class Plain:
    """The floor."""

    def __init__(self, config: Config) -> None:
        source = data.load(config.task)
        parts = partitions.partition(config.partition, source.divisible, config.clients, config.seed)
        cpu = torch.device("cpu")
        everything = Examples(source.train_x, source.train_y, source.spec, device=cpu)
        x, y = (each.contiguous() for each in everything.batch(np.arange(len(source.train_y))))
        self._clients = [Client(x[part], y[part]) for part in map(torch.from_numpy, parts)]
        test = Examples(source.test_x, source.test_y, source.spec, device=cpu)
        self._test = Client(*(each.contiguous() for each in test.batch(np.arange(len(source.test_y)))))
        self._network = models.build(config.model, source.spec.inputs, source.spec.outputs, config.seed)
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
