"""FedRS and FedLC: the worked example T3 of docs/methods.md, identities, and one client's round with them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from client_talk import fednlr, node, round_config, same, train
from hypothesis import given
from hypothesis import strategies as st

from client_app import from_message
from client_app.objectives.fedlc import margins
from client_app.objectives.fedrs import scales
from client_app.registry import OBJECTIVES
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.tasks.registry import PARTITIONS

Z = (2.0, 1.0, 0.5)
SKEWED = PARTITIONS.config("dirichlet")(alpha=0.3, min_size=1)


def loss(z: Any, label: int) -> tuple[float, list[float]]:
    """Cross-entropy and its gradient with respect to T3's logits, of a function of them."""
    logits = torch.tensor([Z], dtype=torch.float64, requires_grad=True)
    value = torch.nn.functional.cross_entropy(z(logits), torch.tensor([label]))
    (gradient,) = torch.autograd.grad(value, logits)
    return float(value), gradient[0].tolist()


def fedrs(counts: list[int], alpha: float, **more: Any) -> Any:
    a = torch.from_numpy(scales(np.array(counts), alpha, **more))
    return lambda z: z * a


def fedlc(counts: list[int], tau: float) -> Any:
    found = torch.from_numpy(margins(np.array(counts), tau))
    return lambda z: z - found


def test_t3_cross_entropy() -> None:
    assert loss(lambda z: z, 0)[0] == pytest.approx(0.4643687841, abs=1e-9)


@pytest.mark.parametrize(
    ("z", "label", "value", "gradient"),
    [
        (fedrs([5, 1, 0], 0.5), 0, 0.4328554669, (-0.3513457629, 0.2386265582, 0.0563596024)),
        (fedrs([5, 1, 0], 0.0), 0, 0.4076059644, (-0.3347590442, 0.2447284711, 0.0)),
        (fedrs([8, 2, 0], 0.5, soft=True), 0, 0.3553034814, None),
        (fedlc([100, 4, 0], 1.0), 0, 0.2222283005, (-0.1992674642, 0.1992674642, 0.0)),
        (fedlc([100, 4, 0], 1.0), 1, 1.6131073157, None),
        (fedlc([100, 4, 0], 0.0), 0, 0.3132616875, None),
    ],
)
def test_t3(z: Any, label: int, value: float, gradient: tuple[float, ...] | None) -> None:
    got, slope = loss(z, label)
    assert got == pytest.approx(value, abs=1e-9)
    if gradient is not None:
        assert slope == pytest.approx(gradient, abs=1e-9)
        assert (gradient[2] == 0.0) == (slope[2] == 0.0)


def test_soft_scales_and_margins() -> None:
    assert scales(np.array([8, 2, 0]), 0.5, soft=True).tolist() == [1.0, 0.625, 0.5]
    assert margins(np.array([100, 4, 0]), 1.0) == pytest.approx([0.3162277660, 0.7071067812, np.inf], abs=1e-9)


@given(st.lists(st.floats(-20, 20), min_size=3, max_size=3), st.floats(0, 1), st.integers(0, 1))
def test_fedrs_gradient_is_a_times_softmax_minus_one_hot(z: list[float], alpha: float, label: int) -> None:
    a = scales(np.array([3, 9, 0]), alpha)
    logits = torch.tensor([z], dtype=torch.float64, requires_grad=True)
    factors = torch.from_numpy(a)
    torch.nn.functional.cross_entropy(logits * factors, torch.tensor([label])).backward()
    softmax = np.exp(a * z - np.max(a * z))
    expected = a * (softmax / softmax.sum() - np.eye(3)[label])
    assert logits.grad is not None
    assert logits.grad[0].tolist() == pytest.approx(expected.tolist(), abs=1e-12)


@given(st.lists(st.floats(-7, 7), min_size=4, max_size=4), st.floats(0.1, 1), st.integers(1, 10**6))
def test_fedlc_with_equal_counts_is_the_loss_over_the_present_classes(
    z: list[float], tau: float, count: int
) -> None:
    logits = torch.tensor([z], dtype=torch.float64)
    shifted = logits - torch.from_numpy(margins(np.array([count, 0, count, count]), tau))
    got = torch.nn.functional.cross_entropy(shifted, torch.tensor([2]))
    present = torch.nn.functional.cross_entropy(logits[:, [0, 2, 3]], torch.tensor([1]))
    assert float(got) == pytest.approx(float(present), abs=1e-10)


@given(st.lists(st.floats(-7, 7), min_size=3, max_size=3), st.floats(0.5, 1))
def test_the_mask_of_fedlc_is_the_limit_of_the_usual_clamp(z: list[float], tau: float) -> None:
    counts, logits = np.array([100, 4, 0]), torch.tensor([z], dtype=torch.float64)
    clamped = torch.from_numpy(tau * np.maximum(counts, 1e-8) ** -0.25)
    masked = torch.from_numpy(margins(counts, tau))
    losses = [torch.nn.functional.cross_entropy(logits - m, torch.tensor([0])) for m in (clamped, masked)]
    assert float(losses[0]) == pytest.approx(float(losses[1]), abs=1e-10)


# ---------------------------------------------------------------- one client's round


def counts_of(**more: Any) -> np.ndarray:
    return from_message.read(round_config(partition=SKEWED, **more), node(3)).examples.class_counts()


@pytest.mark.slow
def test_the_client_of_these_tests_lacks_classes() -> None:
    assert 0 < (counts_of() > 0).sum() < 10


def played(objective: Any, **more: Any) -> Any:
    return train(round_config(objective=objective, partition=SKEWED, **more), context=node(3))


@pytest.mark.slow
def test_neutral_settings_have_plain_bits() -> None:
    iid = train(round_config(), context=node(3))[0]
    assert (from_message.read(round_config(), node(3)).examples.class_counts() > 0).all()
    for neutral in (OBJECTIVES.config("fedrs")(alpha=0.1), OBJECTIVES.config("fedlc")(tau=0.0)):
        assert same(iid, train(round_config(objective=neutral), context=node(3))[0])
    assert same(played(None)[0], played(OBJECTIVES.config("fedrs")(alpha=1.0))[0])


@pytest.mark.parametrize("objective", [OBJECTIVES.config("fedrs")(alpha=0.0), OBJECTIVES.config("fedlc")()])
def test_the_classifier_rows_of_missing_classes_do_not_move(objective: Any) -> None:
    start, _ = train(
        round_config(partition=SKEWED, client=dataclasses.replace(fednlr(), lr=1e-30)), context=node(3)
    )
    got, metrics = played(objective)
    missing = counts_of() == 0
    assert (got["fc2.weight"][missing] == start["fc2.weight"][missing]).all()
    assert (got["fc2.weight"][~missing] != start["fc2.weight"][~missing]).any(axis=1).all()
    assert np.isfinite(metrics[wire.TRAIN_LOSS])


def test_the_counts_are_those_of_the_training_examples() -> None:
    whole, kept = counts_of(), counts_of(**{wire.HOLDOUT: 0.5})
    assert (kept <= whole).all() and 0.3 * whole.sum() < kept.sum() < 0.7 * whole.sum()
    job = from_message.read(round_config(partition=SKEWED), node(3))
    assert (whole == np.bincount(job.examples.y[job.examples.members], minlength=10)).all()


def test_the_reported_loss_is_that_of_the_logits() -> None:
    """Of the first and only step, which starts from the same model with each objective."""
    one = dataclasses.replace(fednlr(), batch_size=10_000)
    losses = {
        played(objective, client=one)[1][wire.TRAIN_LOSS]
        for objective in (None, OBJECTIVES.config("fedlc")(), OBJECTIVES.config("fedrs")())
    }
    assert len(losses) == 1


def test_with_fednlr_the_factors_multiply_the_step_of_the_objective() -> None:
    """B-37: one full batch, so the update is FedNLR's factor times that of local SGD."""
    sgd_only = dataclasses.replace(from_message.read(round_config(), node()).client, batch_size=10_000)
    one = dataclasses.replace(fednlr(), batch_size=10_000)
    start, _ = train(round_config(partition=SKEWED, client=dataclasses.replace(one, lr=1e-30)), context=node(3))
    objective = OBJECTIVES.config("fedrs")(alpha=0.3)
    plain, both = (
        played(objective, client=client)[0]["fc2.bias"] - start["fc2.bias"] for client in (sgd_only, one)
    )
    factors = both / plain
    rule = played(None, client=one)[0]["fc2.bias"] - start["fc2.bias"]
    alone = rule / (played(None, client=sgd_only)[0]["fc2.bias"] - start["fc2.bias"])
    assert factors == pytest.approx(alone, rel=1e-3)
    assert np.ptp(factors) > 0.01


def test_classes_of_a_task_without_classes_cannot_be_counted() -> None:
    job = from_message.read(round_config(), node(0))
    job.examples.spec = dataclasses.replace(job.examples.spec, target="values")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="no single class"):
        job.examples.class_counts()
