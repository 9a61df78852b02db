"""The local training loop of one round, which executes a plan: mini-batch, gradient, step."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable

import numpy as np
import torch
from torch import nn

from fedstride.errors import DataError
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.spec import Target

from .method import Plan, Result, Tensors
from .step import displace_, sgd_step_

Change = Callable[[torch.Tensor, int], torch.Tensor]
"""(x, step) -> x: a change of the inputs of a step, which is counted from 0."""


class _Tally:
    """Sums over the steps of a round. They stay on the device: reading a value would wait for it in each step."""

    def __init__(self, examples: Examples) -> None:
        self.rates: list[float] = []
        self._classifies = examples.spec.target is Target.CLASS
        self._loss_sum = torch.zeros((), dtype=torch.float64, device=examples.device)
        self._right = torch.zeros((), dtype=torch.int64, device=examples.device)
        self._seen = 0

    def add(self, loss: torch.Tensor, logits: torch.Tensor, y: torch.Tensor, rate: float) -> None:
        """Count a step: its mean loss, what the model gave for its examples, their targets, its rate."""
        self._loss_sum.add_(loss.detach(), alpha=len(y))  # computed in float64
        if self._classifies:
            self._right += (logits.detach().argmax(1) == y).sum()
        self._seen += len(y)
        self.rates.append(rate)

    def result(self) -> Result:
        """The means over the examples. Raises DataError if there was no step."""
        if not self.rates:
            raise DataError("this client has no training examples")
        mean = float(self._loss_sum) / self._seen
        return Result(
            loss=mean if math.isfinite(mean) else math.nan,
            accuracy=int(self._right) / self._seen if self._classifies else None,
            rates=self.rates,
        )


def train(
    model: nn.Module,
    examples: Examples,
    steps: Iterable[tuple[np.ndarray, float]],
    plan: Plan,
    *,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    fixed: Iterable[nn.Module] = (),
    change: Change | None = None,
) -> Result:
    """Train the model in place. `steps` contains for each step the positions of its examples and its rate.

    Loss and accuracy of the result are those of the task, whatever the plan adds to the loss.

    `fixed`: modules that stay in eval mode, such as normalisations whose statistics must not change. `change` is
    applied to the inputs of each step (augmentation).

    The rate of an element is the step's rate, times the factor of its neuron in the plan. Raises DataError if
    there is no step.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    velocity: list[torch.Tensor | None] = [None] * len(parameters)
    factors = plan.neuron_factors
    tally = _Tally(examples)
    model.train()
    for module in fixed:
        module.training = False
    with contextlib.ExitStack() as entered:
        for context in plan.contexts:
            entered.enter_context(context)
        for positions, rate in steps:
            x, y = examples.batch(positions)
            x = x if change is None else change(x, len(tally.rates))
            logits = model(x)
            loss, total_loss = _losses(model, examples, plan, x, y, logits)
            gradients = _gradients(total_loss, parameters, plan)
            sgd_step_(
                parameters,
                gradients,
                velocity,
                lr=rate,
                momentum=momentum,
                weight_decay=weight_decay,
                factors=factors,
                pull=plan.pull,
            )
            if plan.displacement is not None:
                displace_(parameters, plan.displacement, lr=rate, factors=factors)
            tally.add(loss, logits, y, rate)
    return tally.result()


def _losses(
    model: nn.Module, examples: Examples, plan: Plan, x: torch.Tensor, y: torch.Tensor, logits: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The task's loss of a mini-batch, and the loss that the plan minimises."""
    if plan.logits is None:
        loss = total_loss = examples.goal.loss(logits, y)
    else:
        loss = examples.goal.loss(logits.detach(), y)
        total_loss = examples.goal.loss(plan.logits(logits), y)
    for term in plan.loss_terms:
        total_loss = total_loss + term(model, x, y, logits)
    return loss, total_loss


def _gradients(loss: torch.Tensor, parameters: Tensors, plan: Plan) -> Tensors:
    """The gradients of one step, with the corrections of the plan."""
    # Parameters that the loss does not depend on, such as an unused head, get gradients of zero.
    gradients: Tensors = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
    with torch.no_grad():
        for correct in plan.corrections:
            gradients = correct(gradients, parameters)
    return gradients
