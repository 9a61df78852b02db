"""What a model gives on each row has the figures of the rows together, and of any choice of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedstride.tasks.evaluation.measuring import evaluate
from fedstride.tasks.evaluation.per_row import joined, per_row
from fedstride.tasks.goals import figures_of, goal_of
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.models.tensors import Examples
from fedstride.tasks.spec import Spec, Target

CASES = [
    *((Target.CLASS, 2), (Target.CLASS, 6), (Target.LABELS, 3)),
    *((Target.VALUES, 1), (Target.VALUES, 2), (Target.SURVIVAL, 1)),
]


def rows_of(target: Target, outputs: int, count: int, seed: int) -> Examples:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 4)).astype(np.float32)
    y = {
        Target.CLASS: rng.integers(0, outputs, count),
        Target.LABELS: rng.integers(0, 2, (count, outputs)).astype(np.uint8),
        Target.VALUES: rng.normal(5, 3, (count, outputs)).astype(np.float32),
        Target.SURVIVAL: np.stack([rng.integers(0, 30, count), rng.integers(0, 2, count)], 1).astype(np.float32),
    }[target]
    of_values = {"target_mean": (5.0,) * outputs, "target_std": (3.0,) * outputs}
    spec = Spec(Inputs(Kind.TABLE, (4,)), outputs, target, **(of_values if target is Target.VALUES else {}))
    goal = goal_of(spec, None, figures_of(target))
    return Examples(x, y, spec, device=torch.device("cpu"), goal=goal)


@pytest.mark.parametrize(("target", "outputs"), CASES)
def test_all_rows_have_the_figures_of_an_evaluation(target: Target, outputs: int) -> None:
    examples = rows_of(target, outputs, 150, seed=1)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(4, outputs), torch.nn.Dropout(0.5)).train()
    found = per_row(network, examples)
    assert network.training
    expected = evaluate(network, examples).figures()
    assert found.rows == 150
    assert set(examples.goal.figures) - set(found.names) <= {"reliability"}  # which is several numbers
    for name, value in zip(found.names, found.figures(), strict=True):
        assert value == pytest.approx(expected[name], abs=1e-12, nan_ok=True), name
    np.testing.assert_allclose(found.figures(np.ones(150, np.int64)), found.figures(), rtol=1e-12)


@pytest.mark.parametrize(("target", "outputs"), CASES)
def test_rows_that_count_often_are_so_many_rows(target: Target, outputs: int) -> None:
    examples = rows_of(target, outputs, 70, seed=2)
    torch.manual_seed(1)
    network = torch.nn.Linear(4, outputs)
    counts = np.random.default_rng(0).integers(0, 4, 70)
    often = np.repeat(np.arange(70), counts)
    repeated = Examples(
        examples.x, examples.y, examples.spec, device=torch.device("cpu"), members=often, goal=examples.goal
    )
    expected = evaluate(network, repeated).figures()
    found = per_row(network, examples)
    for name, value in zip(found.names, found.figures(counts), strict=True):
        # The network computes in float32, and rounds a row differently in another batch.
        assert value == pytest.approx(expected[name], abs=1e-6, nan_ok=True), name


def test_rows_of_several_sites_are_joined() -> None:
    one, other = rows_of(Target.CLASS, 2, 40, seed=3), rows_of(Target.CLASS, 2, 25, seed=4)
    torch.manual_seed(2)
    network = torch.nn.Linear(4, 2)
    both = Examples(
        np.concatenate([one.x, other.x]), np.concatenate([one.y, other.y]), one.spec, device=torch.device("cpu"),
        goal=one.goal,
    )  # fmt: skip
    found = joined([per_row(network, one), per_row(network, other)])
    np.testing.assert_allclose(found.figures(), per_row(network, both).figures(), atol=1e-12)


def test_pairs_of_two_sites_are_not_compared() -> None:
    sites = [rows_of(Target.SURVIVAL, 1, count, seed=count) for count in (30, 45)]
    torch.manual_seed(3)
    network = torch.nn.Linear(4, 1)
    found = joined([per_row(network, site) for site in sites])
    states = [evaluate(network, site).states["c_index"].state for site in sites]
    order, pairs = (sum(float(state[name]) for state in states) for name in ("order", "pairs"))
    assert found.figures().tolist() == [order / (2 * pairs)]
    counts = np.random.default_rng(1).integers(0, 3, 75)
    assert 0.0 <= found.figures(counts)[0] <= 1.0
    assert np.isnan(found.figures(np.zeros(75, np.int64))).all()
