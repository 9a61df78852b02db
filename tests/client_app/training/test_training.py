"""The local training loop: its reports, the rate of each step, and the global random state."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from client_app.registry import Training
from client_app.training.loop import train
from client_app.training.method import Job, Plan, Result, Tensors, steps
from fedstride.errors import ConfigError, DataError
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.models.torch_seeds import seeded
from fedstride.tasks.spec import Spec

CPU = torch.device("cpu")


def examples(n: int = 12, features: int = 4, classes: int = 3, seed: int = 0) -> Examples:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 256, size=(n, 1, 1, features), dtype=np.uint8)
    return Examples(
        x, rng.integers(0, classes, size=n), Spec.images(x.shape[1:], classes, (0.5,), (0.25,)), device=CPU
    )


def network(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))


def bowl(gradients: Tensors, parameters: Tensors) -> Tensors:
    """Replaces the gradient of the loss by that of |w|^2 / 2."""
    return [w.clone() for w in parameters]


def run(
    model: nn.Module,
    data: Examples,
    batches: list[list[int]],
    *,
    lr: float = 0.1,
    momentum: float = 0.0,
    weight_decay: float = 0.0,
    **plan: Any,
) -> Result:
    whole = Plan(batches=[np.array(batch) for batch in batches], **plan)
    job = Job(0, 1, 0, Training(lr=lr), data, model, CPU)
    return train(model, data, steps(job, whole), whole, momentum=momentum, weight_decay=weight_decay)


def bits(model: nn.Module) -> list[bytes]:
    return [tensor.numpy().tobytes() for tensor in model.state_dict().values()]


@pytest.mark.parametrize(("momentum", "weight_decay"), [(0.0, 0.0), (0.9, 0.0), (0.9, 0.01)])
def test_equals_a_torch_loop_bit_for_bit(momentum: float, weight_decay: float) -> None:
    ours, theirs, data = network(), network(), examples()
    batches = [[0, 1, 2], [3, 4, 5, 6], [7]]
    run(ours, data, batches, momentum=momentum, weight_decay=weight_decay)
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=momentum, weight_decay=weight_decay)
    for batch in batches:
        x, y = data.batch(np.array(batch))
        optimizer.zero_grad()
        nn.functional.cross_entropy(theirs(x), y).backward()
        optimizer.step()
    assert bits(ours) == bits(theirs)


def test_each_example_is_measured_before_the_step_that_uses_it() -> None:
    model, data = network(), examples()
    batches = [[0, 1, 2, 3, 4], [5, 6]]
    losses, right, twin = 0.0, 0, network()
    with torch.no_grad():
        first, labels = data.batch(np.array(batches[0]))
        losses += float(nn.functional.cross_entropy(twin(first), labels)) * 5
        right += int((twin(first).argmax(1) == labels).sum())
    run(twin, data, batches[:1])
    with torch.no_grad():
        second, labels = data.batch(np.array(batches[1]))
        losses += float(nn.functional.cross_entropy(twin(second), labels)) * 2
        right += int((twin(second).argmax(1) == labels).sum())
    done = run(model, data, batches)
    assert done.loss == pytest.approx(losses / 7, rel=1e-6)
    assert done.accuracy == right / 7
    assert done.steps == 2


def test_step_factors_multiply_the_rate_of_each_step() -> None:
    """On |w|^2 / 2 each step multiplies the weights by 1 - 0.5 f: 0.5, 0.75, 0.9."""
    model = network()
    before = model[1].weight.detach().clone()
    run(model, examples(), [[0], [1], [2]], lr=0.5, corrections=(bowl,), step_factors=[1.0, 0.5, 0.2])
    torch.testing.assert_close(model[1].weight.detach(), before * (0.5 * 0.75 * 0.9))


def test_step_factors_and_neuron_factors_multiply_each_other() -> None:
    """A4-8: the rate of neuron i of the first layer is lr * f_j * (1.8, 0.2, 1, 1, 1, 1)_i, else lr * f_j."""
    model = network()
    neuron = torch.tensor([1.8, 0.2, 1.0, 1.0, 1.0, 1.0]).reshape(-1, 1)
    first, last = model[1].weight.detach().clone(), model[3].weight.detach().clone()
    run(
        model,
        examples(),
        [[0], [1]],
        lr=0.5,
        corrections=(bowl,),
        step_factors=[1.0, 0.4],
        factors={0: neuron},
    )
    torch.testing.assert_close(model[1].weight.detach(), first * (1 - 0.5 * neuron) * (1 - 0.2 * neuron))
    torch.testing.assert_close(model[3].weight.detach(), last * 0.5 * 0.8)


def test_the_rate_sum_counts_executed_steps_only() -> None:
    done = run(network(), examples(), [[0], [1]], lr=0.5, step_factors=[1.0, 0.4, 0.2])
    assert (done.steps, done.rate_sum) == (2, 0.5 + 0.5 * 0.4)


def test_more_mini_batches_than_factors_are_refused() -> None:
    with pytest.raises(ConfigError, match="factors for 1 steps, but more mini-batches"):
        run(network(), examples(), [[0], [1]], step_factors=[1.0])


def test_a_displacement_follows_each_step_at_its_rate_without_momentum() -> None:
    """w <- w - rate f d; with a gradient of zero nothing else changes w, for any momentum (B-15)."""
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    still = (lambda gradients, _: [torch.zeros_like(g) for g in gradients],)
    neuron = torch.tensor([1.8, 0.2, 1.0, 1.0, 1.0, 1.0]).reshape(-1, 1)
    options = {
        "lr": 0.5,
        "momentum": 0.9,
        "corrections": still,
        "factors": {0: neuron},
        "step_factors": [1.0, 0.4],
    }
    run(model, examples(), [[0], [1]], displacement=[torch.ones_like(p) for p in before], **options)
    for i, (now, was) in enumerate(zip(model.parameters(), before, strict=True)):
        torch.testing.assert_close(was - now.detach(), (0.7 * (neuron if i == 0 else 1.0)) * torch.ones_like(was))


def test_loss_terms_are_added_and_not_reported() -> None:
    """Each adds |w|^2 / 2 of the first layer, so its gradient gains 2 w; the reported loss excludes them."""
    model, twin, data = network(), network(), examples()
    half = lambda model, x, y, logits: model[1].weight.square().sum() / 2  # noqa: E731
    start = model[1].weight.detach().clone()
    done, plain = run(model, data, [[0, 1]], loss_terms=(half, half)), run(twin, data, [[0, 1]])
    torch.testing.assert_close(model[1].weight.detach(), twin[1].weight.detach() - 0.1 * 2 * start)
    assert done.loss == plain.loss


def test_corrections_are_applied_one_after_the_other() -> None:
    model = network()
    before = model[1].weight.detach().clone()
    double = lambda gradients, parameters: [2.0 * g for g in gradients]  # noqa: E731
    run(model, examples(), [[0]], lr=0.25, corrections=(bowl, double))
    torch.testing.assert_close(model[1].weight.detach(), before * 0.5)
    run(model, examples(), [[0]], lr=0.25, corrections=(double, bowl))
    torch.testing.assert_close(model[1].weight.detach(), before * 0.5 * 0.75)


def test_velocity_is_reset_in_each_call() -> None:
    twice, data = network(), examples()
    run(twice, data, [[0, 1]], momentum=0.9)
    run(twice, data, [[2, 3]], momentum=0.9)
    plain = network()
    run(plain, data, [[0, 1], [2, 3]])
    assert bits(twice) == bits(plain)  # a first step has no momentum yet


def test_trains_in_training_mode_and_moves_batch_norm_buffers() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.BatchNorm1d(3))
    model.eval()
    run(model, examples(), [[0, 1, 2], [3, 4, 5]])
    assert int(model[2].num_batches_tracked) == 2
    assert not torch.equal(model[2].running_mean, torch.zeros(3))


def test_frozen_parameters_are_not_changed() -> None:
    model = network()
    model[1].weight.requires_grad_(False)
    before = model[1].weight.detach().clone()
    run(model, examples(), [[0, 1]])
    assert torch.equal(model[1].weight, before)


def test_a_loss_that_is_not_finite_is_reported_as_nan() -> None:
    model = network()
    with torch.no_grad():
        model[3].weight.fill_(math.inf)
    assert math.isnan(run(model, examples(), [[0, 1]]).loss)


def test_training_without_batches_is_an_error() -> None:
    with pytest.raises(DataError, match="no training examples"):
        run(network(), examples(), [])


def test_seeded_draws_are_repeatable_and_restore_the_global_state() -> None:
    before = torch.get_rng_state()
    with seeded(5, CPU):
        first = torch.rand(3)
    with seeded(5, CPU):
        second = torch.rand(3)
    with seeded(6, CPU):
        third = torch.rand(3)
    assert torch.equal(first, second)
    assert not torch.equal(first, third)
    assert torch.equal(torch.get_rng_state(), before)


def test_seeded_takes_every_derived_seed() -> None:
    with seeded(2**63 - 1, CPU):
        torch.rand(1)
