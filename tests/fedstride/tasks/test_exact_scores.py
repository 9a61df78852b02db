"""AUROC and average precision where the scores themselves are: exact, whatever their range."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference
from torch import nn

from fedstride.figures.scores import SCORES as FIGURES
from fedstride.figures.scores import exact_auroc, exact_average_precision
from fedstride.tasks.evaluation.measuring import combined, evaluate, measure
from fedstride.tasks.goals import goal_of
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.spec import Spec, Target

PROPERTY = settings(max_examples=100, deadline=None, database=None, derandomize=True)
SCORES = (-2.0, 0.0, 1e-12, 0.01, 0.02, 17.0, math.inf)
RANGES = {
    "near zero": 0.03, "ordinary": 3.0, "beyond the bins": 400.0, "tiny": 1e-9, "huge": 1e30,
}  # fmt: skip


def pairs(scores: np.ndarray, positive: np.ndarray) -> float:
    """The share of pairs in order, equal ones half: all pairs, one by one."""
    found = [1.0 if p > n else 0.5 if p == n else 0.0 for p in scores[positive] for n in scores[~positive]]
    return math.fsum(found) / len(found)


@pytest.mark.slow
@PROPERTY
@given(
    st.lists(
        st.tuples(st.sampled_from([-2.0, 0.0, 1e-12, 0.01, 0.02, 17.0, math.inf]), st.booleans()),
        min_size=2,
        max_size=30,
    )
)
def test_all_pairs_count(examples: list[tuple[float, bool]]) -> None:
    scores, positive = np.array([s for s, _ in examples]), np.array([p for _, p in examples])
    found = exact_auroc(scores[:, None], positive[:, None])
    precision = exact_average_precision(scores[:, None], positive[:, None])
    if positive.all() or not positive.any():
        assert math.isnan(found)
        assert math.isnan(precision)
        return
    assert found == pytest.approx(pairs(scores, positive), abs=1e-12)
    finite = np.nan_to_num(scores, posinf=100.0)
    assert precision == pytest.approx(reference.average_precision_score(positive, finite), abs=1e-12)
    assert 0.0 <= found <= 1.0
    assert 0.0 < precision <= 1.0


class Given(nn.Module):
    """Returns its inputs: the outputs of a network that a test chooses."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


def examples_of(outputs: np.ndarray, targets: np.ndarray, target: Target) -> Examples:
    spec = Spec(Inputs(Kind.TABLE, (outputs.shape[1],)), outputs.shape[1], target)
    goal = goal_of(spec, None, ["auroc", "average_precision"])
    return Examples(outputs.astype(np.float32), targets, spec, device=torch.device("cpu"), goal=goal)


@pytest.mark.parametrize("scale", RANGES)
@pytest.mark.parametrize("outputs", [2, 3, 7])
def test_classes(scale: str, outputs: int) -> None:
    """130 examples, so three batches."""
    rng = np.random.default_rng(outputs)
    y = rng.integers(0, outputs, 130)
    z = ((rng.standard_normal((130, outputs)) + np.eye(outputs)[y]) * RANGES[scale]).astype(np.float32)
    found = evaluate(Given(), examples_of(z, y, Target.CLASS)).figures()
    wide = z.astype(np.float64)
    columns = range(1, 2) if outputs == 2 else range(outputs)
    ranks = [wide[:, k] - _log_sum(np.delete(wide, k, axis=1)) for k in columns]
    assert found["auroc"] == pytest.approx(
        np.mean([pairs(rank, y == k) for k, rank in zip(columns, ranks, strict=True)]), abs=1e-9
    )
    assert found["average_precision"] == pytest.approx(
        np.mean([reference.average_precision_score(y == k, rank) for k, rank in zip(columns, ranks, strict=True)]),
        abs=1e-9,
    )


def _log_sum(values: np.ndarray) -> np.ndarray:
    most = values.max(1)
    return most + np.log(np.exp(values - most[:, None]).sum(1))


@pytest.mark.parametrize("scale", RANGES)
def test_labels(scale: str) -> None:
    rng = np.random.default_rng(5)
    y = (rng.random((90, 3)) < 0.3).astype(np.float32)
    z = ((rng.standard_normal((90, 3)) + y) * RANGES[scale]).astype(np.float32)
    found = evaluate(Given(), examples_of(z, y, Target.LABELS)).figures()
    assert found["auroc"] == pytest.approx(reference.roc_auc_score(y, z), abs=1e-9)
    assert found["average_precision"] == pytest.approx(reference.average_precision_score(y, z), abs=1e-9)


def test_a_perfect_ranking_near_zero_is_one_and_not_a_half() -> None:
    z = np.stack([np.zeros(8), np.linspace(0.0, 0.03, 8)], axis=1)
    found = evaluate(Given(), examples_of(z, np.arange(8) // 4, Target.CLASS)).figures()
    assert (found["auroc"], found["average_precision"]) == (1.0, 1.0)


def test_the_figures_do_not_depend_on_who_measures_which_batch() -> None:
    rng = np.random.default_rng(6)
    y = rng.integers(0, 3, 200)
    examples = examples_of(rng.standard_normal((200, 3)), y, Target.CLASS)
    parts = [*measure(Given(), examples, [0, 1]), *measure(Given(), examples, [2, 3])]
    found = combined(parts, 200, examples.goal)
    assert found == evaluate(Given(), examples)
    assert found.figures() == evaluate(Given(), examples).figures()
    assert found.reported() == evaluate(Given(), examples).reported()


@pytest.mark.parametrize("scale", RANGES)
@pytest.mark.parametrize("target", [Target.CLASS, Target.LABELS])
def test_what_clients_report_gives_the_figure_of_all_their_examples(scale: str, target: Target) -> None:
    rng = np.random.default_rng(8)
    y = rng.integers(0, 4, 700) if target is Target.CLASS else (rng.random((700, 4)) < 0.3).astype(np.float32)
    hits = np.eye(4)[y] if target is Target.CLASS else y
    z = (rng.standard_normal((700, 4)) + hits) * RANGES[scale]
    parts = [slice(0, 2), slice(2, 100), slice(100, 700)]
    reported = [evaluate(Given(), examples_of(z[part], y[part], target)).reported() for part in parts]
    exact = evaluate(Given(), examples_of(z, y, target)).figures()
    for name in ("auroc", "average_precision"):
        pool = FIGURES[name].pool
        assert pool is not None
        value, error = pool([each[name] for each in reported], [2.0, 98.0, 600.0])  # type: ignore[misc]
        assert abs(value - exact[name]) <= error + 1e-12
        assert value == pytest.approx(exact[name], abs=1e-2)
        assert list(reported[0]) == ["loss", "auroc", "average_precision"]


@pytest.mark.parametrize("outputs", [2, 3])
@pytest.mark.parametrize("size", [0.03, 40.0, 1e4, 1e30])
def test_confident_outputs_have_an_auroc(outputs: int, size: float) -> None:
    z, y = np.tile(np.eye(outputs), (10, 1)) * size, np.tile(np.arange(outputs), 10)
    found = evaluate(Given(), examples_of(z, y, Target.CLASS))
    assert found.figures()["auroc"] == 1.0
    pool = FIGURES["auroc"].pool
    assert pool is not None
    assert pool([found.reported()["auroc"]] * 2, [1.0, 3.0])[0] == 1.0  # type: ignore[list-item]


def test_outputs_that_are_no_numbers_rank_in_the_middle() -> None:
    z = np.array([[0.0, -1.0], [0.0, np.nan], [0.0, 1.0], [0.0, np.inf]])
    found = evaluate(Given(), examples_of(z, np.array([0, 1, 0, 1]), Target.CLASS)).figures()
    assert found["auroc"] == 0.75
