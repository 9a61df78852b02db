"""What a client of a round costs if all are trained together (engine=vectorized), on the processor or the GPU.

The floor is the same round in the same process with one client after the other. Both begin with the messages and
end with the replies. The values are seconds for each client, so their inverse is the number of clients a second.
Each client has 50 random images, in one epoch of batches of 10; the data are here already.

"CIFAR-10 of pfl" has the sizes of the task of that name in pfl-research (Granqvist et al., 2024): 1,000 clients,
of which other 50 train in each round, and its network.

"DrJAX" is the same work of the small CNN as a jitted program of that package, beside the same floor: `rivals`.

Below the table stands for each network what its work needs at least on this device (`_limits.py`), and what a
client costs beside the training: messages, methods, replies. On a GPU each network has cohorts of three sizes, and
the 1,500 rounds of pfl's task are done and timed.
"""

from __future__ import annotations

import functools
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from flwr.app import ConfigRecord, Message, MessageType, RecordDict
from torch import nn

from benchmarks import Measured, _limits, rivals, seconds
from benchmarks._plain import Client, Work, prepared
from client_app.app import app
from client_app.registry import OBJECTIVES, RULES
from fedstride.arrays.named import to_record
from fedstride.errors import RunError
from fedstride.flower import identity
from fedstride.messages import wire
from fedstride.parts import USER_PARTS, Part
from fedstride.tasks.data import Data
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models import networks_by_name, numerics
from fedstride.tasks.models.tensors import Examples, pick_device, to_arrays
from fedstride.tasks.registry import MODELS, PARTITIONS, TASKS
from fedstride.tasks.spec import Spec
from lab.engine.local_grid import LocalGrid
from lab.engine.vectorized import training as together_training
from lab.engine.vectorized.grid import VectorizedGrid

FLOOR = "the same client of a round of one client after the other, in the same process"

IMAGES = 50
"""Of each client."""

PFL_CNN = "pfl_cnn"

COLOURS, GREY = (3, 32, 32), (1, 28, 28)

CASES: dict[str, tuple[str, tuple[int, ...], int, int]] = {
    "small CNN": ("cnn_mnist", GREY, 50, 50),
    "LeNet-5": ("lenet5", COLOURS, 50, 50),
    "SimpleCNN": ("simple_cnn", COLOURS, 50, 50),
    "VGG-9": ("vgg9", COLOURS, 20, 20),
    "ResNet-20": ("resnet20", COLOURS, 20, 20),
    "MLP": ("mlp", GREY, 50, 50),
    "CIFAR-10 of pfl": (PFL_CNN, COLOURS, 1000, 50),
}
"""Network, shape of an image, clients, and clients in a round."""

ON_A_GPU = (20, 50, 100)
"""Clients in a round on a GPU, for all networks that are not those of a known task."""

TASK, TASK_ROUNDS = "CIFAR-10 of pfl", 1500
"""The case that is a known task, and its rounds."""


class PflCNN(nn.Module):
    """Two 3x3 convolutions of 32 and 64 filters, max pooling, 128 units; dropout of 0.25 and 0.5."""

    def __init__(self, inputs: Inputs, outputs: int) -> None:
        super().__init__()
        inputs.require(PFL_CNN, Kind.IMAGE, shape=(None, None, None))
        self.conv1, self.conv2 = nn.Conv2d(inputs.shape[0], 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(64 * ((inputs.shape[1] - 4) // 2) * ((inputs.shape[2] - 4) // 2), 128)
        self.fc2 = nn.Linear(128, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = nn.functional.max_pool2d(self.conv2(self.conv1(x).relu()).relu(), 2)
        x = nn.functional.dropout(x, 0.25, self.training).flatten(1)
        logits: torch.Tensor = self.fc2(nn.functional.dropout(self.fc1(x).relu(), 0.5, self.training))
        return logits


RIVAL = "small CNN"
"""The case that DrJAX does, too."""

LR, BATCH = 0.05, 10


def timings(repeats: int, only: str = "") -> Iterator[Measured | str]:
    """Each network, `repeats` rounds after the first, each time next to the floor."""
    identity.set_identity()
    device = pick_device("auto")
    with numerics.on_threads(1):  # as each client trains
        rates = _limits.rates(device)
    yield (
        f"This device: {rates.operations / 1e9:,.0f} GFLOP/s and {rates.bytes / 1e9:,.0f} GB/s"
        + (f", {1e6 * rates.launch:.1f} us between two small operations." if rates.launch else ".")
    )
    for name, (model, shape, clients, cohort) in CASES.items():
        sizes = ON_A_GPU if device.type == "cuda" and name != TASK else (cohort,)
        for size in sizes if only in name else ():
            yield from _timings(name, model, shape, max(clients, size), size, repeats, rates)


def _timings(
    name: str, model: str, shape: tuple[int, ...], clients: int, cohort: int, repeats: int, rates: _limits.Rates
) -> Iterator[Measured | str]:
    label = f"{name}, {cohort} clients"
    task = Part("random_images", lambda: _images(shape, clients), "Random images.")
    with mock.patch.dict(USER_PARTS.setdefault("task", {}), {f"random_images_{clients}_{shape[0]}": task}), _pfl():
        rounds = Rounds(f"random_images_{clients}_{shape[0]}", model, shape, clients, cohort)
        alone, together = LocalGrid(app, clients), VectorizedGrid(app, clients)
        besides = []
        for number in range(repeats + 1):
            floor = seconds(functools.partial(rounds.play, alone, number + 1))
            value, beside = _played(rounds, together, number + 1)
            if number:  # the first calls are slower
                besides.append(beside)
                yield Measured(label, value / cohort, floor / cohort)
        one = Rounds(rounds.task, model, shape, clients, 1)
        yield _least(label, rounds, one, alone, together, rates)
        yield f"{label}, beside the training: {1e3 * statistics.median(besides) / cohort:.2f} ms."
        if name == TASK and rates.launch:
            taken = sum(seconds(functools.partial(rounds.play, together, n + 1)) for n in range(TASK_ROUNDS))
            yield f"{label}: {TASK_ROUNDS:,} rounds took {taken:.1f} s."
        if name == RIVAL:
            yield from _drjax(f"{label}: DrJAX", rounds, alone, repeats)


def _least(
    label: str, rounds: Rounds, one: Rounds, alone: LocalGrid, together: VectorizedGrid, rates: _limits.Rates
) -> str:
    """What the work of a client needs at least. `one`: the same rounds of one client; all have the same work."""
    bounds = _limits.least(
        rates,
        operations=rounds.cohort * _limits.operations(lambda: one.play(alone, 1)),
        weights=rounds.weights,
        launches=_limits.launches(lambda: rounds.play(together, 1)) if rates.launch else 0,
    )
    operations, weights, launches = (1e3 * bound / rounds.cohort for bound in bounds)
    sent = f", {launches:.2f} ms for launches" if rates.launch else ""
    return f"{label}: needs at least {operations:.2f} ms for operations, {weights:.2f} ms for weights{sent}."


def _played(rounds: Rounds, together: VectorizedGrid, number: int) -> tuple[float, float]:
    """The seconds of a round, and how many of them are not training."""
    training, inside = together_training.train_together, list[float]()

    def timed(*arguments: Any, **options: Any) -> Any:
        started = time.perf_counter()
        try:
            return training(*arguments, **options)
        finally:
            inside.append(time.perf_counter() - started)

    with mock.patch.object(together_training, "train_together", timed):
        taken = seconds(functools.partial(rounds.play, together, number))
    return taken, taken - sum(inside)


def _drjax(label: str, rounds: Rounds, alone: LocalGrid, repeats: int) -> Iterator[Measured | str]:
    """The times of DrJAX's program, started again for each repetition, and of the floor; or why there are none."""
    try:
        interpreter = rivals.interpreter_of(rivals.DRJAX)
        with tempfile.TemporaryDirectory(prefix="fedstride-rivals-") as folder:
            rivals.save(Path(folder) / "work.npz", rounds.work(), 1, BATCH, LR)
            for number in range(repeats):
                floor = seconds(functools.partial(rounds.play, alone, number + 1)) / rounds.cohort
                theirs = rivals.theirs(rivals.DRJAX, interpreter, Path(folder))
                yield Measured(label, theirs.round / rounds.cohort, floor)
        yield f"{rivals.DRJAX.name} ({rivals.DRJAX.package}): {rivals.DRJAX.differs}; no messages."
    except RunError as error:
        yield f"{rivals.DRJAX.name} was not measured: {error}"


class Rounds:
    """Rounds of a federation with random images."""

    def __init__(self, task: str, model: str, shape: tuple[int, ...], clients: int, cohort: int) -> None:
        self.task, self.cohort = task, cohort
        self._clients, self._shape = clients, shape
        spec = _spec(shape)
        chosen = MODELS.config(model)()
        training: Any = RULES.config("sgd")()
        training.lr, training.batch_size = LR, BATCH
        self._network = network(model, shape)
        self._model = to_record(to_arrays(self._network))
        self._config: dict[str, Any] = {
            wire.SEED: 1,
            wire.NUM_CLIENTS: clients,
            **spec.flatten(),
            **RULES.flatten(training),
            **OBJECTIVES.flatten(OBJECTIVES.config("plain")()),
            **TASKS.flatten(TASKS.config(task)()),
            **MODELS.flatten(chosen),
            **PARTITIONS.flatten(PARTITIONS.config("iid")()),
        }

    @property
    def weights(self) -> int:
        """The bytes of the weights of all steps and clients of a round."""
        return sum(parameter.nbytes for parameter in self._network.parameters()) * self.cohort * (IMAGES // BATCH)

    def work(self) -> Work:
        """The same work without messages, for a cohort of all clients; nothing is evaluated."""
        images = _images(self._shape, self.cohort)
        x, y = prepared(Examples(images.train_x, images.train_y, images.spec, device=torch.device("cpu")))
        clients = [Client(x[k : k + IMAGES], y[k : k + IMAGES]) for k in range(0, len(y), IMAGES)]
        return Work(clients, Client(x[:0], y[:0]), self._network)

    def play(self, grid: LocalGrid, number: int) -> None:
        """Send the model to the clients of round `number`, and wait for their replies."""
        config = ConfigRecord({**self._config, wire.SERVER_ROUND: number})
        content = RecordDict({wire.CONFIG: config, wire.ARRAYS: self._model})
        replies = grid.send_and_receive(self._messages(content, list(grid.get_node_ids()), number))
        failed = [reply.error.reason for reply in replies if reply.has_error()]
        if failed:
            raise RuntimeError(failed[0])

    def _messages(self, content: RecordDict, nodes: Sequence[int], number: int) -> list[Message]:
        drawn = np.random.default_rng(number).choice(len(nodes), self.cohort, replace=False)
        return [
            Message(content=content, message_type=MessageType.TRAIN, dst_node_id=nodes[client])
            for client in sorted(drawn.tolist())
        ]


def network(model: str, shape: tuple[int, ...]) -> nn.Module:
    """The network of a case for images of this shape."""
    spec = _spec(shape)
    with _pfl():
        return networks_by_name.build(MODELS.config(model)(), spec.inputs, spec.outputs, seed=1)


def _pfl() -> AbstractContextManager[object]:
    """Inside, `PflCNN` can be chosen like the networks of the project."""
    part = Part(PFL_CNN, PflCNN, "The network of pfl-research for CIFAR-10.")
    return mock.patch.dict(USER_PARTS.setdefault("model", {}), {PFL_CNN: part})


def _spec(shape: tuple[int, ...]) -> Spec:
    return Spec.images(shape, 10, (0.5,) * shape[0], (0.25,) * shape[0])


def _images(shape: tuple[int, ...], clients: int) -> Data:
    rng = np.random.default_rng(0)
    count = clients * IMAGES
    x, y = rng.integers(0, 256, (count, *shape), np.uint8), rng.integers(0, 10, count)
    return Data(_spec(shape), x, y, x[:1], y[:1])
