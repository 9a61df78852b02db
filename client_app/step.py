"""One step of local training: SGD with one rate, or with a rate for each neuron.

    g <- g + weight_decay w;   v <- momentum v + g;   w <- w - lr f v

f is 1, or a factor for each neuron. If f is 1, the result is bit-identical to torch.optim.SGD without dampening
and Nesterov momentum. These are functions and not a torch.optim.Optimizer, because the first use of that class
imports torch's compiler. This takes two seconds in each process, and in a deployment each message has its own
process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

Factors = Mapping[int, torch.Tensor]
"""Factors of the rate, by position of the parameter, in a shape that broadcasts to it; a missing factor is 1."""

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
    """Do one step on the parameters, in place. `velocity` contains v, which is None before the first step.

    The gradients may be overwritten. Momentum accumulates the gradient without the factor, and the factor
    multiplies the velocity. Weight decay is part of the gradient (A5-11).
    """
    for i, (w, g) in enumerate(zip(parameters, gradients, strict=True)):
        if weight_decay:
            g = g.add(w, alpha=weight_decay)
        if momentum:
            before = velocity[i]
            g = velocity[i] = g.clone() if before is None else before.mul_(momentum).add_(g)
        _move_(w, g, i, lr, factors)


@torch.no_grad()
def displace_(
    parameters: Sequence[torch.Tensor],
    directions: Sequence[torch.Tensor],
    *,
    lr: float,
    factors: Factors = NO_FACTORS,
) -> None:
    """w <- w - lr f d for each parameter and its direction d, without momentum and weight decay (B-15)."""
    for i, (w, d) in enumerate(zip(parameters, directions, strict=True)):
        _move_(w, d, i, lr, factors)


def _move_(w: torch.Tensor, direction: torch.Tensor, i: int, lr: float, factors: Factors) -> None:
    if i in factors:
        w.addcmul_(direction, factors[i], value=-lr)
    else:
        w.add_(direction, alpha=-lr)
