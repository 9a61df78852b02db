"""The step of local SGD: bit-identical to torch.optim.SGD, and with a factor for each neuron, computed by hand."""

from __future__ import annotations

import itertools

import pytest
import torch

from client_app.training.stackable_parts import Pull, one_pull
from client_app.training.step import displace_, sgd_step_
from fedstride.errors import ConfigError

SHAPES = [(5, 3), (5,), (2, 3, 3, 3), ()]


def drawn(seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator) for shape in SHAPES]


def bits(tensors: list[torch.Tensor]) -> list[bytes]:
    return [tensor.detach().numpy().tobytes() for tensor in tensors]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("weight_decay", [0.0, 0.01])
def test_equals_torch_sgd_bit_for_bit(momentum: float, weight_decay: float) -> None:
    ours = drawn(0)
    theirs = [torch.nn.Parameter(w.clone()) for w in ours]
    optimizer = torch.optim.SGD(theirs, lr=0.1, momentum=momentum, weight_decay=weight_decay)
    velocity: list[torch.Tensor | None] = [None] * len(ours)
    for step in range(1, 6):
        gradients = drawn(step)
        for parameter, g in zip(theirs, gradients, strict=True):
            parameter.grad = g.clone()
        optimizer.step()
        sgd_step_(ours, gradients, velocity, lr=0.1, momentum=momentum, weight_decay=weight_decay)
        assert bits(ours) == bits(list(theirs))


def test_factor_of_one_gives_plain_bits_up_to_rounding() -> None:
    plain, factored = drawn(0), drawn(0)
    ones = {i: torch.ones(()) for i in range(len(SHAPES))}
    sgd_step_(plain, drawn(1), [None] * 4, lr=0.1)
    sgd_step_(factored, drawn(1), [None] * 4, lr=0.1, factors=ones)
    for a, b in zip(plain, factored, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=0)


def test_factor_multiplies_decay_and_velocity_but_momentum_keeps_the_raw_gradient() -> None:
    """A5-11 by hand: weight decay 0.1, momentum 0.5, rate 0.1, factors 2 and 0.5; gradients 1, then 2."""
    w = torch.tensor([[1.0], [1.0]], dtype=torch.float64)
    velocity: list[torch.Tensor | None] = [None]
    factors = {0: torch.tensor([[2.0], [0.5]], dtype=torch.float64)}
    options = {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.1, "factors": factors}
    sgd_step_([w], [torch.full_like(w, 1.0)], velocity, **options)
    # g = 1 + 0.1 = 1.1 = v; w = 1 - 0.1 * (2, 0.5) * 1.1
    assert w.flatten().tolist() == pytest.approx([0.78, 0.945], abs=1e-15)
    assert velocity[0].flatten().tolist() == pytest.approx([1.1, 1.1], abs=1e-15)
    sgd_step_([w], [torch.full_like(w, 2.0)], velocity, **options)
    # g = 2 + 0.1 w = (2.078, 2.0945); v = 0.55 + g = (2.628, 2.6445); w - 0.1 * (2, 0.5) * v
    assert velocity[0].flatten().tolist() == pytest.approx([2.628, 2.6445], abs=1e-15)
    assert w.flatten().tolist() == pytest.approx([0.78 - 0.5256, 0.945 - 0.132225], abs=1e-15)


def test_only_parameters_with_a_factor_are_scaled() -> None:
    a, b = torch.zeros(2), torch.zeros(2)
    sgd_step_([a, b], [torch.ones(2), torch.ones(2)], [None, None], lr=1.0, factors={1: torch.tensor([3.0, 5.0])})
    assert a.tolist() == [-1.0, -1.0]
    assert b.tolist() == [-3.0, -5.0]


def test_velocity_is_a_copy_of_the_first_gradient() -> None:
    g, velocity = torch.ones(3), [None]
    sgd_step_([torch.zeros(3)], [g], velocity, lr=0.1, momentum=0.9)
    g.fill_(7.0)
    assert velocity[0].tolist() == [1.0, 1.0, 1.0]


def test_no_velocity_without_momentum() -> None:
    velocity = [None]
    sgd_step_([torch.zeros(3)], [torch.ones(3)], velocity, lr=0.1, weight_decay=0.1)
    assert velocity == [None]


def test_refuses_another_number_of_gradients() -> None:
    with pytest.raises(ValueError, match="shorter"):
        sgd_step_([torch.zeros(1), torch.zeros(1)], [torch.zeros(1)], [None, None], lr=0.1)


def test_a_displacement_uses_the_rate_of_each_element() -> None:
    a, b = torch.zeros(2), torch.zeros(2)
    displace_([a, b], [torch.ones(2), torch.ones(2)], lr=0.5, factors={1: torch.tensor([3.0, 5.0])})
    assert a.tolist() == [-0.5, -0.5]
    assert b.tolist() == [-1.5, -2.5]


def test_a_displacement_of_zero_changes_no_bits() -> None:
    before, after = drawn(0), drawn(0)
    displace_(after, [torch.zeros(shape) for shape in SHAPES], lr=0.1, factors={0: torch.rand(5, 1)})
    assert bits(before) == bits(after)


def doubles(seed: int) -> list[torch.Tensor]:
    return [each.double() for each in drawn(seed)]


PULLED = list(itertools.product([0.0, 0.9], [0.0, 0.01], [False, True]))


@pytest.mark.parametrize(("momentum", "weight_decay", "factored"), PULLED)
def test_a_pull_is_a_term_of_the_gradient(momentum: float, weight_decay: float, factored: bool) -> None:
    """The step without a pull, of gradients to which strength (w - anchor) was added, over several steps."""
    plain, pulled, anchor, strength = doubles(0), doubles(0), doubles(9), 3.0
    factors = {0: torch.tensor([0.5, 1.5, 7.0, 1.0, 0.1])[:, None].double(), 3: torch.tensor(2.0).double()}
    options = {"lr": 0.1, "momentum": momentum, "weight_decay": weight_decay}
    options |= {"factors": factors} if factored else {}
    velocities = [None] * 4, [None] * 4
    for step in range(1, 6):
        gradients = doubles(step)
        added = [g + strength * (w - a) for g, w, a in zip(gradients, plain, anchor, strict=True)]
        sgd_step_(plain, added, velocities[0], **options)
        sgd_step_(pulled, gradients, velocities[1], pull=Pull(strength, anchor), **options)
        for a, b in zip(plain, pulled, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
        assert bits(gradients) == bits(doubles(step))


def test_two_pulls_are_one() -> None:
    first, second, other = Pull(0.5, doubles(1)), Pull(1.5, doubles(2)), Pull(0.1, doubles(3))
    w = doubles(0)
    gradient = [sum(p.strength * (x - p.anchor[i]) for p in (first, second, other)) for i, x in enumerate(w)]
    both = one_pull([first, second, other])
    for i, expected in enumerate(gradient):
        torch.testing.assert_close(both.strength * (w[i] - both.anchor[i]), expected, rtol=1e-12, atol=1e-12)
    assert one_pull([first]) is first
    assert one_pull([]) is None


@pytest.mark.parametrize("strength", [0.0, -1.0, float("nan"), float("inf")])
def test_a_pull_without_a_strength_is_refused(strength: float) -> None:
    with pytest.raises(ConfigError, match="strength of a pull"):
        Pull(strength, doubles(1))
