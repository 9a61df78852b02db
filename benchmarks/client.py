"""What the methods cost on a client: a round of local training, and FedNLR's pass over the activations.

The floor is a plain torch loop on the same network, in the same memory layout, with the same mini-batches of
tensors that were normalised before, the mean loss and `torch.optim.SGD(foreach=True)`. Ours is the training loop
with the method's plan, on a message of the second round of a run, so that states are not zero. It also reads the
stored arrays (uint8 for images), normalises, and counts losses and right predictions.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import numpy as np
import torch
from flwr.app import Context, Message
from torch import nn

from benchmarks import Measured, seconds
from client_app import combined_methods, from_message
from client_app.app import app
from client_app.state import saved_states
from client_app.training.loop import train
from client_app.training.method import Plan, steps
from fedstride.messages import wire
from fedstride.tasks.models.tensors import load_arrays
from lab.engine.local_grid import LocalGrid
from server_app import preparation, session
from server_app.config.compose import compose

FLOOR = "a round of a plain torch loop with torch.optim.SGD(foreach=True), one thread"
NETWORKS = {
    "small CNN": ["model=cnn_mnist"],
    "small CNN, batches of 10": ["model=cnn_mnist", "client.batch_size=10"],
    "MLP": ["model=mlp"],
    "VGG-9": ["model=vgg9"],
    "MLP on a table": ["model=mlp", "task=breast_cancer", "client.local_epochs=10"],
}
METHODS = {
    "SGD": ["strategy=fedavg"],
    "FedNLR": ["strategy=fedavg", "client=fednlr"],
    "2D-LRD": ["strategy=two_d_lrd"],
    "FedProx": ["strategy=fedavg", "objective=fedprox"],
    "SCAFFOLD": ["strategy=scaffold"],
    "FedDyn": ["strategy=feddyn"],
}
COMMON = ["rounds=2", "partition=iid", "client.device=cpu", "evaluate_every=0", "checkpoint_every=0"]


def timings(repeats: int, only: str = "") -> Iterator[Measured]:
    """Each method on each network, `repeats` times, each time next to the floor."""
    torch.set_num_threads(1)
    for where, network in NETWORKS.items():
        for method, chosen in METHODS.items():
            name = f"{where}: {method}"
            if only in name:
                yield from _timings(name, [*network, *chosen], repeats)


def _timings(name: str, overrides: list[str], repeats: int) -> Iterator[Measured]:
    with tempfile.TemporaryDirectory() as folder:
        local = Local(*last_message([*COMMON, *overrides, f"out='{folder}'"]))
        for call in (local.plain, local.train):
            call()  # the first calls are slower
        for _ in range(repeats):
            floor = seconds(local.plain)
            yield Measured(name, seconds(local.train), floor)
            if "FedNLR" in name:
                yield Measured(f"{name}, activations", seconds(local.begin), floor)


class Local:
    """What one client does with a message."""

    def __init__(self, message: Message, context: Context) -> None:
        config = message.content.config_records[wire.CONFIG]
        self._message, self._config, self._context = message, config, context
        self._job = from_message.read(config, context)
        self._plan = self.begin()
        self._steps = list(steps(self._job, self._plan))  # drawn once: a plan's mini-batches can be an iterator
        self._drawn = [torch.from_numpy(positions) for positions, _ in self._steps]
        self._x, self._y = self._job.examples.batch(np.arange(len(self._job.examples)))

    def begin(self) -> Plan:
        """The plan of the method, which is a pass over the data if it is FedNLR's."""
        content = self._message.content
        load_arrays(self._job.model, combined_methods.arrays_in(wire.ARRAYS, content.array_records[wire.ARRAYS]))
        states = saved_states.store(self._config, self._context, self._job.client_id).load().states
        return combined_methods.of(self._job, self._config).begin(self._job, content, states)

    def train(self) -> None:
        """Our training loop with this plan."""
        train(self._job.model, self._job.examples, self._steps, self._plan)

    def plain(self) -> None:
        """The floor, with the same mini-batches."""
        network = self._job.model.train()
        optimiser = torch.optim.SGD(network.parameters(), lr=self._job.lr, foreach=True)
        for chosen in self._drawn:
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(self._x[chosen]), self._y[chosen]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()


def last_message(overrides: list[str]) -> tuple[Message, Context]:
    """The last message for training of a run with these settings, and the context of its client."""
    prepared = preparation.prepare(compose(overrides))
    grid = _Keeping(app, prepared.config.clients)
    session.run(grid, prepared, on_folder=grid.keep_client_states_in)
    return grid.last


class _Keeping(LocalGrid):
    """A Grid that keeps the last message for training."""

    last: tuple[Message, Context]

    def _deliver(self, message: Message) -> Message:
        if message.metadata.message_type == "train":
            self.last = message, self._contexts[message.metadata.dst_node_id]
        return super()._deliver(message)
