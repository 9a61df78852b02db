"""One step of local training: SGD with a rate for all, or a rate per neuron.

    g <- g + weight_decay w;   v <- momentum v + g;   w <- w - lr f v

f is 1, or a factor for each neuron. As torch.optim.SGD (without dampening and Nesterov) where f is 1, to
the bit. Functions, not an Optimizer: the first use of torch's base class imports its compiler, two seconds
in every process, and in a deployment every message is a process.

Knows tensors and rates; does not know where either comes from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

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
        _move_(w, g, i, lr, factors)


@torch.no_grad()
def displace_(
    parameters: Sequence[torch.Tensor],
    directions: Sequence[torch.Tensor],
    *,
    lr: float,
    factors: Factors = NO_FACTORS,
) -> None:
    """w <- w - lr f d for each parameter and its direction d: past momentum and weight decay (B-15)."""
    for i, (w, d) in enumerate(zip(parameters, directions, strict=True)):
        _move_(w, d, i, lr, factors)


def _move_(w: torch.Tensor, direction: torch.Tensor, i: int, lr: float, factors: Factors) -> None:
    if i in factors:
        w.addcmul_(direction, factors[i], value=-lr)
    else:
        w.add_(direction, alpha=-lr)
