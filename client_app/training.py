"""The local loop of one round: mini-batch, gradient, step.

Knows how a step is put together from a plan; does not know who filled the plan, nor Flower, messages or
data sets.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from torch import nn

from fedstride.errors import DataError
from fedstride.tasks.tensors import Examples

from .method import Plan, Result, Tensors
from .step import displace_, sgd_step_


def train(
    model: nn.Module,
    examples: Examples,
    steps: Iterable[tuple[np.ndarray, float]],
    plan: Plan,
    *,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
) -> Result:
    """Train the model in place: `steps` gives each mini-batch (positions) and its rate.

    The rate of an element is the step's, times its neuron's factor in the plan. Raises DataError where there
    is no step.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    velocity: list[torch.Tensor | None] = [None] * len(parameters)
    factors = plan.neuron_factors
    model.train()
    # Summed on the device: reading a number back in every step would wait for it.
    loss_sum = torch.zeros((), dtype=torch.float64, device=examples.device)
    right = torch.zeros((), dtype=torch.int64, device=examples.device)
    seen = taken = 0
    rate_sum = 0.0
    for positions, rate in steps:
        x, y = examples.batch(positions)
        logits = model(x)
        loss = nn.functional.cross_entropy(logits, y)
        whole = loss
        for term in plan.loss_terms:
            whole = whole + term(model, x, y, logits)
        gradients = _gradients(whole, parameters, plan)
        sgd_step_(
            parameters,
            gradients,
            velocity,
            lr=rate,
            momentum=momentum,
            weight_decay=weight_decay,
            factors=factors,
        )
        if plan.displacement is not None:
            displace_(parameters, plan.displacement, lr=rate, factors=factors)
        loss_sum += loss.detach().double() * len(y)
        right += (logits.detach().argmax(1) == y).sum()
        seen += len(y)
        taken += 1
        rate_sum += rate
    if not taken:
        raise DataError("this client has no example to train on")
    mean = float(loss_sum) / seen
    return Result(
        loss=mean if math.isfinite(mean) else math.nan,
        accuracy=int(right) / seen,
        steps=taken,
        rate_sum=rate_sum,
    )


def _gradients(loss: torch.Tensor, parameters: Tensors, plan: Plan) -> Tensors:
    """The gradients of one step, corrected as the plan says."""
    # Zeros for parameters that the loss does not reach, as a head that this task does not use.
    gradients: Tensors = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    with torch.no_grad():
        for correct in plan.corrections:
            gradients = correct(gradients, parameters)
    return gradients


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Draws of torch's global generators (dropout) come from `seed` inside, and leave no trace outside."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield
