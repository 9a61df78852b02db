"""The objectives plain and FedProx on scalars: the worked example T2 of docs/methods.md."""

from __future__ import annotations

import pytest
import torch
from toy import Gradient, gradient_a, gradient_b, play

from client_app.objectives.fedprox import FedProx
from client_app.objectives.plain import Plain
from client_app.registry import FedProxSettings, Training
from client_app.training.method import Job, Received
from client_app.training.stackable_parts import Pull
from client_app.training.step import sgd_step_


def descend(gradient: Gradient, mu: float | None, *, momentum: float = 0.0, steps: int = 2) -> float:
    """T2: one parameter from w = 1, rate 0.1, two steps."""
    objective = Plain() if mu is None else FedProx(FedProxSettings(mu=mu))
    return float(play(gradient, 1.0, objective, momentum=momentum, tau=steps).w[0])


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
def test_a_larger_mu_ends_nearer_to_the_received_model(gradient: Gradient) -> None:
    away = [abs(descend(gradient, mu, steps=5) - 1.0) for mu in (0.0, 0.1, 0.5, 1.0, 5.0)]
    assert away == sorted(away, reverse=True)
    assert len(set(away)) == 5


class Two(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = torch.nn.Parameter(torch.ones(2, 3)), torch.nn.Parameter(torch.ones(2, 3))


def begun(mu: float) -> tuple[Pull, Two]:
    model, rule = Two(), FedProx(FedProxSettings(mu=mu))
    plan = rule.begin(Job(0, 1, 0, Training(), None, model, torch.device("cpu")), Received("fedprox"), {})
    assert plan.pull is not None
    return plan.pull, model


@torch.no_grad()
def test_the_anchor_is_the_received_model() -> None:
    pull, model = begun(2.0)
    model.a.add_(3.0)
    assert [float(each[0, 0]) for each in pull.anchor] == [1.0, 1.0]
    sgd_step_(
        list(model.parameters()), [torch.full((2, 3), 10.0), torch.zeros(2, 3)], [None] * 2, lr=0.125, pull=pull
    )
    assert [float(each[0, 0]) for each in model.parameters()] == [4.0 - 0.125 * 16.0, 1.0]


def test_pulls_every_parameter_by_its_own_distance() -> None:
    """Also if autograd returns the same tensor as the gradient of both parameters."""
    pull, model = begun(1.0)
    with torch.no_grad():
        model.a.add_(1.0)
        model.b.add_(10.0)
    gradients = torch.autograd.grad(((model.a + model.b) * 2.0).sum(), list(model.parameters()))
    with torch.no_grad():
        sgd_step_(list(model.parameters()), gradients, [None] * 2, lr=0.25, pull=pull)
    assert [float(each[0, 0]) for each in model.parameters()] == [2.0 - 0.25 * 3.0, 11.0 - 0.25 * 12.0]
