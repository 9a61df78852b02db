"""Losses and figures: against scikit-learn, and as sums that add over clients of different sizes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import sklearn.metrics as reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstride.errors import ConfigError
from fedstride.figures import metrics
from fedstride.figures.scores import SCORES
from fedstride.messages.limits import MAX_LIST
from fedstride.tasks.goals import Sums, chosen_figures, goal_of, loss_of, rates_of
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.spec import LOSSES, Spec, Target

N = 500
TABLE = Inputs(Kind.TABLE, (3,))


def spec(target: Target, outputs: int) -> Spec:
    return Spec(TABLE, outputs, target)


def made(target: Target, outputs: int, n: int = N, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Outputs of a network that is better than chance, and targets."""
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((n, outputs))
    if target is Target.CLASS:
        y = rng.choice(outputs, n, p=np.arange(1, outputs + 1) / (outputs * (outputs + 1) / 2))
        return torch.tensor(noise + 1.5 * np.eye(outputs)[y], dtype=torch.float32), torch.tensor(y)
    if target is Target.LABELS:
        y = (rng.random((n, outputs)) < 0.3).astype(np.float32)
        return torch.tensor(noise + y, dtype=torch.float32), torch.tensor(y)
    y = 3.0 + rng.standard_normal((n, outputs)) * 2.0
    return torch.tensor(y + noise, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


def sums_of(name: str, target: Target, outputs: int) -> Sums:
    return goal_of(spec(target, outputs), None, [name]).sums[name]


def figure(name: str, target: Target, z: torch.Tensor, y: torch.Tensor) -> float:
    sums = sums_of(name, target, z.shape[1])
    return finished(name, sums(z, y), len(y))


def finished(name: str, sums: torch.Tensor, count: int) -> float:
    return SCORES[name].of(rates_of(sums, count))


CASES: dict[str, tuple[str, Target, int, Callable[[Any, Any], float], float]] = {
    "accuracy": ("accuracy", Target.CLASS, 4, lambda z, y: reference.accuracy_score(y, z.argmax(1)), 1e-12),
    "balanced": (
        *("balanced_accuracy", Target.CLASS, 4),
        *(lambda z, y: reference.balanced_accuracy_score(y, z.argmax(1)), 1e-12),
    ),
    "f1": ("f1", Target.CLASS, 4, lambda z, y: reference.f1_score(y, z.argmax(1), average="macro"), 1e-12),
    **{
        name: (name, Target.CLASS, 4, lambda z, y, of=of: of(y, z.argmax(1)), 1e-12)
        for name, of in {
            "precision": partial(reference.precision_score, average="macro"),
            "recall": partial(reference.recall_score, average="macro"),
            "jaccard": partial(reference.jaccard_score, average="macro"),
            "cohen_kappa": reference.cohen_kappa_score,
            "matthews": reference.matthews_corrcoef,
        }.items()
    },
    **{
        f"{name} of labels": (name, Target.LABELS, 3, lambda z, y, of=of: of(y, z > 0, average="macro"), 1e-12)
        for name, of in {
            "precision": reference.precision_score,
            "recall": reference.recall_score,
            "jaccard": reference.jaccard_score,
        }.items()
    },
    "specificity": (
        *("specificity", Target.CLASS, 4),
        *(lambda z, y: np.mean([reference.recall_score(y != k, z.argmax(1) != k) for k in range(4)]), 1e-12),
    ),
    "top5": (
        *("top5_accuracy", Target.CLASS, 9),
        *(lambda z, y: reference.top_k_accuracy_score(y, z, k=5), 1e-12),
    ),
    "f1 of labels": ("f1", Target.LABELS, 3, lambda z, y: reference.f1_score(y, z > 0, average="macro"), 1e-12),
    "accuracy of labels": ("accuracy", Target.LABELS, 3, lambda z, y: ((z > 0) == (y > 0)).double().mean(), 1e-12),
    "rmse": ("rmse", Target.VALUES, 2, lambda z, y: math.sqrt(reference.mean_squared_error(y, z)), 1e-6),
    "mae": ("mae", Target.VALUES, 2, lambda z, y: reference.mean_absolute_error(y, z), 1e-6),
    "r2": ("r2", Target.VALUES, 2, lambda z, y: reference.r2_score(y, z), 1e-6),
}


@pytest.mark.parametrize("case", CASES)
def test_figures_are_those_of_scikit_learn(case: str) -> None:
    name, target, outputs, expected, tolerance = CASES[case]
    z, y = made(target, outputs)
    assert figure(name, target, z, y) == pytest.approx(float(expected(z, y)), abs=tolerance)


@pytest.mark.parametrize("case", CASES)
def test_rates_of_clients_of_different_sizes_add(case: str) -> None:
    """The mean of the clients' rates by number of examples gives the figure of all examples."""
    name, target, outputs, _, _ = CASES[case]
    z, y = made(target, outputs)
    sums = sums_of(name, target, outputs)
    whole = finished(name, sums(z, y), N)
    cuts = [0, 7, 30, 31, 300, N]
    rates = np.zeros(len(sums(z, y)))
    figures = []
    for start, end in itertools.pairwise(cuts):
        part = sums(z[start:end], y[start:end]).numpy() / (end - start)
        rates += (end - start) / N * part
        figures.append((SCORES[name].of(part.tolist()), end - start))
    assert SCORES[name].of(rates.tolist()) == pytest.approx(whole, rel=1e-9)
    mean = sum(value * n for value, n in figures) / N
    if name not in ("accuracy", "mae", "top5_accuracy"):
        assert mean != pytest.approx(whole, rel=1e-6)  # a mean of figures is another number, or NaN


@pytest.mark.parametrize("outputs", [2, 3, 10, 62, 200])
def test_the_number_of_sums_is_bounded(outputs: int) -> None:
    z, y = made(Target.CLASS, outputs, n=50)
    for name in ("f1", "balanced_accuracy"):
        assert len(sums_of(name, Target.CLASS, outputs)(z, y)) <= MAX_LIST, name
        assert not math.isnan(figure(name, Target.CLASS, z, y))


def test_classes_without_examples_do_not_count() -> None:
    z, y = torch.eye(4)[[0, 1, 1]], torch.tensor([0, 1, 0])
    assert figure("balanced_accuracy", Target.CLASS, z, y) == pytest.approx((0.5 + 1.0) / 2)
    assert figure("f1", Target.CLASS, z, y) == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_constant_values_have_no_r2() -> None:
    constant = torch.full((5, 1), 2.0)
    assert math.isnan(figure("r2", Target.VALUES, constant, constant))


@given(st.integers(2, 6), st.integers(1, 40), st.integers(0, 10**6))
@settings(max_examples=50, deadline=None)
def test_figures_stay_in_their_range(outputs: int, n: int, seed: int) -> None:
    z, y = made(Target.CLASS, outputs, n, seed)
    for name in ("accuracy", "f1", "specificity"):
        sums = sums_of(name, Target.CLASS, outputs)
        rates = sums(z, y) / n
        assert bool(((rates >= 0) & (rates <= 1)).all())
        value = finished(name, sums(z, y), n)
        assert math.isnan(value) or 0.0 <= value <= 1.0 + 1e-12


# ---------------------------------------------------------------- losses


@pytest.mark.parametrize("target", Target)
def test_the_default_loss_is_the_first(target: Target) -> None:
    z, y = made(target, 3)
    default, named = loss_of(spec(target, 3)), loss_of(spec(target, 3), LOSSES[target][0])
    assert torch.equal(default(z, y), named(z, y))
    for name in LOSSES[target]:
        loss = loss_of(spec(target, 3), name)
        each = loss(z, y, reduction="none")
        assert each.shape == (N,)
        torch.testing.assert_close(loss(z, y), each.mean())
        torch.testing.assert_close(loss(z, y, reduction="sum"), each.sum())


def test_the_default_loss_has_the_bits_of_cross_entropy() -> None:
    z, y = made(Target.CLASS, 10, n=50)
    assert torch.equal(loss_of(spec(Target.CLASS, 10))(z, y), torch.nn.functional.cross_entropy(z, y))


def test_hinge_is_crammer_and_singers() -> None:
    z, y = made(Target.CLASS, 5)
    expected = reference.hinge_loss(y, z.double().numpy(), labels=range(5))
    assert float(loss_of(spec(Target.CLASS, 5), "hinge")(z.double(), y)) == pytest.approx(expected)


def test_a_loss_or_figure_of_another_task() -> None:
    with pytest.raises(ConfigError, match=r"loss = 'hinge' is not allowed: .* it must be squared_error"):
        loss_of(spec(Target.VALUES, 1), "hinge")
    with pytest.raises(ConfigError, match=r"'accuracy' is not a figure of this task, which has rmse, mae, r2"):
        chosen_figures(spec(Target.VALUES, 1), ["accuracy"])


@pytest.mark.parametrize("name", [name for name, score in SCORES.items() if score.finish and score.most == 1.0])
@pytest.mark.parametrize("outputs", [2, 3, 7])
def test_no_figure_is_above_1_by_rounding(name: str, outputs: int) -> None:
    """Of right predictions of 3 to 120 examples, and from the mean of the rates of two clients."""
    for count in range(3, 121, 3):
        y = torch.arange(count) % outputs
        z = torch.nn.functional.one_hot(y, outputs).float() * 4.0 + 0.001 * torch.arange(count)[:, None]
        sums = sums_of(name, Target.CLASS, outputs)(z, y)
        rates = rates_of(sums, count)
        shares = [0.3 * rate + 0.7 * rate for rate in rates]
        of_clients = [metrics.finished(f"local/{name}", given) for given in (rates, shares)]
        for each in (SCORES[name].of(rates), *of_clients):
            assert math.isnan(each) or each <= 1.0


NAN = torch.full((4, 3), torch.nan)


@pytest.mark.parametrize("name", ["accuracy", "balanced_accuracy", "top5_accuracy", "f1", "precision", "recall"])
@pytest.mark.parametrize("of", range(3))
def test_outputs_that_are_nan_are_right_for_no_class(name: str, of: int) -> None:
    """argmax says class 0 of a row of NaN."""
    targets = torch.full((4,), of)
    assert figure(name, Target.CLASS, NAN, targets) == 0.0
    half = torch.nn.functional.one_hot(targets, 3).float()
    half[2:] = torch.nan
    want = {"precision": 1.0, "f1": 2 / 3}.get(name, 0.5)
    assert figure(name, Target.CLASS, half, targets) == pytest.approx(want, abs=1e-12)


@pytest.mark.parametrize("of", [0.0, 1.0])
def test_labels_that_are_nan_are_wrong(of: float) -> None:
    assert figure("accuracy", Target.LABELS, NAN, torch.full((4, 3), of)) == 0.0
