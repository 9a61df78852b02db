"""One step of local training: SGD with one rate, or with a rate for each neuron.

    g <- g + weight_decay w + mu (w - a);   v <- momentum v + g;   w <- w - lr f v

f is 1, or a factor for each neuron. mu is the strength of the plan's pull, and a its anchor. If f is 1 and there
is no pull, the result is bit-identical to torch.optim.SGD without dampening and Nesterov momentum. These are
functions and not a torch.optim.Optimizer, because the first use of that class imports torch's compiler. This takes
two seconds in each process, and in a deployment each message has its own process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from .stackable_parts import Pull

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
    pull: Pull | None = None,
) -> None:
    """Do one step on the parameters, in place. `velocity` contains v, which is None before the first step.

    Momentum accumulates the gradient without the factor, and the factor multiplies the velocity. Weight decay and
    pull are part of the gradient (A5-11).
    """
    if len(parameters) == len(gradients) and not (weight_decay or momentum or factors or pull):
        torch._foreach_add_(list(parameters), list(gradients), alpha=-lr)  # one launch on a GPU
        return
    for i, (w, g) in enumerate(zip(parameters, gradients, strict=True)):
        if weight_decay:
            g = g.add(w, alpha=weight_decay)
        if momentum:
            before = velocity[i]
            g = velocity[i] = g.clone() if before is None else before.mul_(momentum).add_(g)
        if pull is not None:
            _pull_(w, i, lr, factors, pull, velocity[i])
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


def _pull_(
    w: torch.Tensor, i: int, lr: float, factors: Factors, pull: Pull, velocity: torch.Tensor | None
) -> None:
    """Add the gradient of the pull to the velocity; without momentum, go this part of the step, in one pass.

    That is w - lr f mu (w - a) = lerp(w, a, lr f mu), which is beyond a for a product above 1.
    """
    anchor = pull.anchor[i]
    if velocity is not None:
        velocity.add_(w - anchor, alpha=pull.strength)
    elif i in factors:
        w.lerp_(anchor, factors[i] * (lr * pull.strength))
    else:
        w.lerp_(anchor, lr * pull.strength)


def _move_(w: torch.Tensor, direction: torch.Tensor, i: int, lr: float, factors: Factors) -> None:
    if i in factors:
        w.addcmul_(direction, factors[i], value=-lr)
    else:
        w.add_(direction, alpha=-lr)
