"""Plain and FedProx on scalars: the worked example T2 of the specification, section 3.1."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from fedstride.schema import OBJECTIVES as CONFIGS
from fedstride.schema import FedProxConfig, ObjectiveConfig
from torch import nn

from client_app.objectives.fedprox import FedProx
from client_app.objectives.plain import Objective, Plain
from client_app.rules.sgd import sgd_step_
from client_app.work import OBJECTIVES

Gradient = Callable[[torch.Tensor], torch.Tensor]


def gradient_a(w: torch.Tensor) -> torch.Tensor:
    """Of (w - 3)^2."""
    return 2.0 * (w - 3.0)


def gradient_b(w: torch.Tensor) -> torch.Tensor:
    """Of (w + 1)^2 / 2."""
    return w + 1.0


def descend(gradient: Gradient, mu: float | None, *, momentum: float = 0.0, steps: int = 2) -> float:
    """T2: one parameter from w = 1, rate 0.1, two steps."""
    w = [torch.tensor([1.0], dtype=torch.float64)]
    objective: Objective = Plain(ObjectiveConfig(), w) if mu is None else FedProx(FedProxConfig(mu=mu), w)
    velocity: list[torch.Tensor | None] = [None]
    for _ in range(steps):
        gradients = [gradient(w[0])]
        gradients = objective.correct(gradients, w)
        sgd_step_(w, gradients, velocity, lr=0.1, momentum=momentum)
    return float(w[0])


def test_t2_without_a_proximal_term() -> None:
    a, b = descend(gradient_a, None), descend(gradient_b, None)
    assert (a, b, (a + b) / 2) == pytest.approx((1.72, 0.62, 1.17), abs=1e-12)


def test_t2_with_fedprox() -> None:
    a, b = descend(gradient_a, 0.5), descend(gradient_b, 0.5)
    assert (a, b, (a + b) / 2) == pytest.approx((1.7, 0.63, 1.165), abs=1e-12)


def test_t2_with_fedprox_and_momentum() -> None:
    assert descend(gradient_a, 0.5, momentum=0.9) == pytest.approx(2.06, abs=1e-12)


@pytest.mark.parametrize("gradient", [gradient_a, gradient_b])
def test_mu_zero_has_plain_bits(gradient: Gradient) -> None:
    assert descend(gradient, 0.0, steps=9) == descend(gradient, None, steps=9)


@pytest.mark.parametrize("gradient", [gradient_a, gradient_b])
def test_the_first_step_has_plain_bits(gradient: Gradient) -> None:
    assert descend(gradient, 0.7, steps=1) == descend(gradient, None, steps=1)
    assert descend(gradient, 0.7, steps=2) != descend(gradient, None, steps=2)


@pytest.mark.parametrize("gradient", [gradient_a, gradient_b])
def test_a_stronger_pull_ends_nearer_to_what_was_sent(gradient: Gradient) -> None:
    away = [abs(descend(gradient, mu, steps=5) - 1.0) for mu in (0.0, 0.1, 0.5, 1.0, 5.0)]
    assert away == sorted(away, reverse=True)
    assert len(set(away)) == 5


def test_the_anchor_stays_where_the_round_began() -> None:
    w = [torch.tensor([1.0, 2.0])]
    objective = FedProx(FedProxConfig(mu=2.0), w)
    w[0].add_(3.0)
    gradients = [torch.tensor([10.0, 20.0])]
    gradients = objective.correct(gradients, w)
    assert gradients[0].tolist() == [16.0, 26.0]
    assert w[0].tolist() == [4.0, 5.0]


def test_pulls_every_parameter_by_its_own_distance() -> None:
    w = [torch.zeros(2), torch.zeros(1)]
    objective = FedProx(FedProxConfig(mu=1.0), w)
    w[0].copy_(torch.tensor([1.0, -2.0]))
    w[1].fill_(5.0)
    gradients = [torch.zeros(2), torch.zeros(1)]
    gradients = objective.correct(gradients, w)
    assert [g.tolist() for g in gradients] == [[1.0, -2.0], [5.0]]


def test_fedprox_with_two_parameters_that_get_one_gradient() -> None:
    w = [nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.ones(2, 3))]
    objective = FedProx(FedProxConfig(mu=1.0), w)
    with torch.no_grad():
        w[0].add_(1.0)
        w[1].add_(10.0)
    gradients = torch.autograd.grad(((w[0] + w[1]) * 2.0).sum(), w)
    gradients = objective.correct(gradients, w)
    assert gradients[0][0, 0] == 3.0
    assert gradients[1][0, 0] == 12.0


def test_every_configured_objective_is_known_to_the_client() -> None:
    assert set(OBJECTIVES) == set(CONFIGS)
