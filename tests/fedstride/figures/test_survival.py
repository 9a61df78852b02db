"""A survival task: Cox's loss and the C-index against sums written out pair by pair, in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedstride.figures.concordance import CIndex, compared
from fedstride.figures.figure import pooled, state_of
from fedstride.figures.figure_states import checked, packed
from fedstride.tasks.goals import cox, goal_of
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.spec import Spec, Target

Rows = list[tuple[float, float, int]]
"""(risk, time, event)."""

number = st.integers(-6, 6).map(float) | st.floats(-30, 30, allow_nan=False)
rows = st.lists(st.tuples(number, st.integers(0, 5).map(float), st.integers(0, 1)), min_size=1, max_size=14)


def of(table: Rows) -> tuple[torch.Tensor, torch.Tensor]:
    values = np.array(table, dtype=np.float64)
    return torch.tensor(values[:, :1], requires_grad=True), torch.tensor(values[:, 1:])


def pairs_by_hand(table: Rows) -> tuple[float, int]:
    right, pairs = 0.0, 0
    for r, t, e in table:
        for other, seen, event in table:
            if e == 1 and (t < seen or (t == seen and event == 0)):
                pairs += 1
                right += 1.0 if r > other else 0.5 if r == other else 0.0
    return right, pairs


def cox_by_hand(table: Rows) -> tuple[list[float], list[float]]:
    """The loss of each row, and the gradient of their sum by each risk."""
    losses, gradient = [], [0.0] * len(table)
    for i, (r, t, e) in enumerate(table):
        if e == 0:
            losses.append(0.0)
            continue
        at_risk = [j for j, other in enumerate(table) if other[1] >= t]
        top = max(table[j][0] for j in at_risk)
        total = math.fsum(math.exp(table[j][0] - top) for j in at_risk)
        losses.append(top + math.log(total) - r)
        gradient[i] -= 1.0
        for j in at_risk:
            gradient[j] += math.exp(table[j][0] - top) / total
    return losses, gradient


UGLY: dict[str, Rows] = {
    "no events": [(1.0, 2.0, 0), (3.0, 1.0, 0), (0.0, 9.0, 0)],
    "all at one time": [(1.0, 4.0, 1), (2.0, 4.0, 1), (0.5, 4.0, 1)],
    "one row": [(0.3, 2.0, 1)],
    "one row, censored": [(0.3, 2.0, 0)],
    "event and censored at one time": [(1.0, 4.0, 1), (2.0, 4.0, 0)],
    "all risks equal": [(0.0, 1.0, 1), (0.0, 2.0, 0), (0.0, 3.0, 1)],
    "time 0": [(0.0, 0.0, 1), (1.0, 0.0, 0), (2.0, 5.0, 1)],
    "large risks": [(700.0, 1.0, 1), (-700.0, 2.0, 1), (699.0, 0.5, 0)],
    "the last one has the event": [(1.0, 1.0, 0), (2.0, 2.0, 0), (3.0, 3.0, 1)],
}


def check_cox(table: Rows) -> None:
    outputs, targets = of(table)
    losses, gradient = cox_by_hand(table)
    each = cox(outputs, targets, reduction="none")
    np.testing.assert_allclose(each.detach().numpy(), losses, rtol=1e-9, atol=1e-9)
    total = cox(outputs, targets, reduction="sum")
    assert total.item() == pytest.approx(math.fsum(losses), abs=1e-9)
    assert float(cox(outputs, targets)) == pytest.approx(math.fsum(losses) / len(table), abs=1e-9)
    total.backward()  # type: ignore[no-untyped-call]
    assert outputs.grad is not None
    np.testing.assert_allclose(outputs.grad[:, 0].numpy(), gradient, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", UGLY)
def test_cox_of_ugly_input(name: str) -> None:
    check_cox(UGLY[name])


@pytest.mark.slow
@given(rows)
def test_cox(table: Rows) -> None:
    check_cox(table)


@pytest.mark.parametrize("name", UGLY)
def test_the_c_index_of_ugly_input(name: str) -> None:
    check_pairs(UGLY[name])


@given(rows)
def test_the_c_index(table: Rows) -> None:
    check_pairs(table)


def check_pairs(table: Rows) -> None:
    values = np.array(table, dtype=np.float64)
    right, pairs = pairs_by_hand(table)
    assert compared(*values.T) == (2 * right, pairs)
    state = checked(CIndex().state(values[:, :1], values[:, 1:]))
    assert CIndex().fault(len(table), state) is None
    found = CIndex().value(state)
    assert found == right / pairs if pairs else math.isnan(found)


@pytest.mark.slow
@given(st.lists(rows, min_size=1, max_size=5))
def test_over_sites_only_pairs_of_one_site_are_compared(sites: list[Rows]) -> None:
    sent, right, pairs = [], 0.0, 0
    for site in sites:
        values = np.array(site, dtype=np.float64)
        sent.append(packed(len(site), state_of(CIndex(), "c_index", values[:, :1], values[:, 1:])))
        own = pairs_by_hand(site)
        right, pairs = right + own[0], pairs + own[1]
    found = pooled(CIndex(), "c_index", sent, [float(len(site)) for site in sites]).value
    assert isinstance(found, float)
    assert found == right / pairs if pairs else math.isnan(found)


def test_many_rows_are_compared_quickly_and_exactly() -> None:
    draw = np.random.default_rng(3)
    risk, time, event = draw.standard_normal(3000).round(1), draw.integers(0, 200, 3000), draw.random(3000) < 0.4
    longer = (time[:, None] < time) | ((time[:, None] == time) & ~event[None, :])
    usable = event[:, None] & longer
    twice = 2 * (usable & (risk[:, None] > risk)).sum() + (usable & (risk[:, None] == risk)).sum()
    assert compared(risk, time, event.astype(np.float64)) == (twice, usable.sum())


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"pairs": np.array(1e9)}, "more pairs than its rows have"),
        ({"order": np.array(1e9)}, "more concordant pairs than pairs"),
        ({"order": np.array(-1.0)}, "more concordant"),
        ({"pairs": np.zeros(2)}, "not of a C-index"),
        ({"times": np.array(1.0)}, "not of a C-index"),
    ],
)
def test_pairs_that_cannot_be_do_not_count(changed: dict[str, np.ndarray], words: str) -> None:
    values = np.array([(1.0, 2.0, 1.0), (0.0, 3.0, 0.0), (2.0, 4.0, 1.0)])
    state = checked(CIndex().state(values[:, :1], values[:, 1:]))
    fault = CIndex().fault(3, state | changed)
    assert fault is not None and words in fault


@pytest.mark.parametrize(
    ("events", "censored", "leaves"),
    [(30, 25, True), (20, 0, True), (19, 40, False), (40, 3, False), (0, 50, True)],
)
def test_few_events_stay_at_the_site(events: int, censored: int, leaves: bool) -> None:
    targets = np.array([(float(k), float(k < events)) for k in range(events + censored)])
    state = checked(CIndex().state(np.zeros((len(targets), 1)), targets))
    assert (CIndex().discreet(len(targets), state, 20) is not None) == leaves


def test_what_a_survival_task_has() -> None:
    spec = Spec(Inputs(Kind.TABLE, (3,)), 1, Target.SURVIVAL)
    goal = goal_of(spec)
    assert goal.figures == ("c_index",) and goal.loss is cox and spec.targets == 2
    assert Spec.unflatten(spec.flatten()) == spec
    assert spec.form.endswith("with a risk to predict")
