"""What a client's batch costs, compared with the same batch in a plain torch loop over tensors in memory.

The plain loop indexes float32 tensors that were normalised before, computes the same loss, and steps with
`torch.optim.SGD`. Ours reads the stored arrays (uint8 for images), normalises on the device, and counts right
predictions and losses. Both run in turn, several times; printed is the median of the ratios.

    uv run python tests/speed/batch_cost.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from client_app import batches
from client_app.method import Plan
from client_app.training import train
from fedstride.tasks import data, models
from fedstride.tasks.parts import MODELS, TASKS
from fedstride.tasks.tensors import Examples

CASES = [
    ("mnist5k", "mlp", 50),
    ("mnist5k", "cnn_mnist", 50),
    ("mnist5k", "cnn_mnist", 10),
    ("breast_cancer", "mlp", 50),
]
STEPS, REPEATS = 200, 9
CPU = torch.device("cpu")


def main() -> None:
    """Print a table."""
    torch.set_num_threads(1)
    print(f"{'task':<15}{'model':<12}{'batch':>6}{'plain ms':>10}{'ours ms':>10}{'ratio':>8}{'from':>8}{'to':>7}")
    for task, model, size in CASES:
        plain, ours = loops(task, model, size)
        plain(), ours()  # warm
        pairs = [(seconds(plain), seconds(ours)) for _ in range(REPEATS)]
        ratios = [b / a for a, b in pairs]
        ms = [1000 * statistics.median(each) / STEPS for each in zip(*pairs, strict=True)]
        spread = f"{statistics.median(ratios):>8.3f}{min(ratios):>8.3f}{max(ratios):>7.3f}"
        print(f"{task:<15}{model:<12}{size:>6}{ms[0]:>10.3f}{ms[1]:>10.3f}{spread}", flush=True)


def loops(task: str, model: str, size: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """The plain loop and ours, on the same examples and mini-batches."""
    source = data.load(TASKS.config(task)())
    examples = Examples(source.train_x, source.train_y, source.spec, device=CPU)
    network = models.build(MODELS.config(model)(), source.spec.inputs, source.spec.outputs, seed=1)
    epochs = -(-STEPS * size // len(examples))
    drawn = list(batches.epochs(len(examples), size, epochs, seed=1, server_round=1, client=0))[:STEPS]
    x, y = examples.batch(np.arange(len(examples)))
    indices = [torch.from_numpy(each) for each in drawn]

    def plain() -> None:
        optimiser = torch.optim.SGD(network.parameters(), lr=0.01)
        network.train()
        for chosen in indices:
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(x[chosen]), y[chosen]).backward()
            optimiser.step()

    return plain, lambda: train(network, examples, ((each, 0.01) for each in drawn), Plan())


def seconds(run: Callable[[], object]) -> float:
    """How long a call takes."""
    started = time.perf_counter()
    run()
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
