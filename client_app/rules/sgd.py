"""The step of local SGD, with a rate for all or a rate per neuron.

    g <- g + weight_decay w;   v <- momentum v + g;   w <- w - lr f v

f is 1, or what a rule like FedNLR gives each neuron. As torch.optim.SGD (without dampening and
Nesterov) where f is 1, to the bit. A function, not an Optimizer: the first use of torch's base class
imports its compiler, two seconds in every process, and in a deployment every message is a process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import nn

from fedstride.schema import ClientConfig
from fedstride.tasks.tensors import Examples

Factors = Mapping[int, torch.Tensor]
"""Factor of the rate by position of the parameter, broadcastable to it; absent means 1."""

NO_FACTORS: Factors = {}


@torch.no_grad()
def sgd_step_(
    parameters: Sequence[torch.Tensor],
    gradients: Sequence[torch.Tensor],
    velocity: list[torch.Tensor | None],
    *,
    lr: float,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    factors: Factors = NO_FACTORS,
) -> None:
    """One step on the parameters in place; `velocity` holds v, None before the first step.

    The gradients may be overwritten. Momentum accumulates the raw gradient, the factor multiplies the
    velocity; weight decay is part of the gradient (A5-11).
    """
    for i, (w, g) in enumerate(zip(parameters, gradients, strict=True)):
        if weight_decay:
            g = g.add(w, alpha=weight_decay)
        if momentum:
            before = velocity[i]
            g = velocity[i] = g.clone() if before is None else before.mul_(momentum).add_(g)
        if i in factors:
            w.addcmul_(g, factors[i], value=-lr)
        else:
            w.add_(g, alpha=-lr)


class RateRule(Protocol):
    """What a client rule is: rate factors per neuron and diagnostics, before local training starts."""

    def __call__(self, model: nn.Module, examples: Examples, lr: float) -> tuple[Factors, dict[str, float]]:
        """Factors and diagnostics for a round at rate `lr`."""
        ...


def plain_rates(model: nn.Module, examples: Examples, lr: float) -> tuple[Factors, dict[str, float]]:
    """One rate for all."""
    return NO_FACTORS, {}


def make(config: ClientConfig) -> RateRule:
    """Local SGD."""
    return plain_rates
