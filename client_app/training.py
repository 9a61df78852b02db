"""The local loop of one round: batches, objective, rates.

Knows how a step is put together from its parts; does not know Flower, messages or data sets.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from fedstride.errors import DataError
from fedstride.schema import ClientConfig
from fedstride.tasks.tensors import Examples

from .objectives.plain import Objective
from .rules.sgd import Factors, sgd_step_


@dataclass(frozen=True)
class Trained:
    """What a round of local training says of itself."""

    loss: float  # mean over the examples as they were met, each with the model of that moment
    accuracy: float
    steps: int


def train(
    model: nn.Module,
    examples: Examples,
    batches: Iterable[np.ndarray],
    *,
    client: ClientConfig,
    lr: float,
    objective: Objective,
    factors: Factors,
    step_factors: Sequence[float] | None = None,
) -> Trained:
    """Train the model in place on these mini-batches.

    The rate of step j is `lr`, times `step_factors[j]` where given, times each neuron's factor.
    Raises DataError where there is no batch.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    velocity: list[torch.Tensor | None] = [None] * len(parameters)
    model.train()
    # Summed on the device: reading a number back in every step would wait for it.
    loss_sum = torch.zeros((), dtype=torch.float64, device=examples.device)
    right = torch.zeros((), dtype=torch.int64, device=examples.device)
    seen = steps = 0
    for steps, positions in enumerate(batches, start=1):
        x, y = examples.batch(positions)
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        # Zeros for parameters that the loss does not reach, as a head that this task does not use.
        raw = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        gradients = objective.correct(raw, parameters)
        sgd_step_(
            parameters,
            gradients,
            velocity,
            lr=lr if step_factors is None else lr * step_factors[steps - 1],
            momentum=client.momentum,
            weight_decay=client.weight_decay,
            factors=factors,
        )
        loss_sum += loss.detach().double() * len(y)
        right += (logits.detach().argmax(1) == y).sum()
        seen += len(y)
    if not steps:
        raise DataError("this client has no example to train on")
    mean = float(loss_sum) / seen
    return Trained(loss=mean if math.isfinite(mean) else math.nan, accuracy=int(right) / seen, steps=steps)


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draws of torch's global generators (dropout) come from `seed` inside, and leave no trace outside."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
