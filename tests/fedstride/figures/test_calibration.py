"""Calibration and the Brier score: against sums written out row by row, and what a site with few rows says."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedstride.figures.calibration import BINS, Calibration, Reliability, joined, probabilities, sums
from fedstride.figures.figure_states import checked
from fedstride.tasks.goals import FIGURES, goal_of
from fedstride.tasks.inputs import Inputs, Kind
from fedstride.tasks.spec import Spec, Target

DRAW = np.random.default_rng(5)


def table(classes: int, rows: int = 500) -> tuple[np.ndarray, np.ndarray]:
    return 2 * DRAW.standard_normal((rows, classes)), DRAW.integers(0, classes, rows)


def by_hand(p: list[float], o: list[float]) -> tuple[float, list[list[float]]]:
    """The ECE and (mean predicted, observed, rows) of each bin, one row after the other."""
    bins: list[list[tuple[float, float]]] = [[] for _ in range(10)]
    for each, true in zip(p, o, strict=True):
        bins[min(9, math.floor(each * 10))].append((each, true))
    means = [
        [sum(x) / len(rows) for x in zip(*rows, strict=True)] + [len(rows)] if rows else [0, 0, 0] for rows in bins
    ]
    return sum(abs(a - b) * n for a, b, n in means) / len(p), means


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_classes(classes: int) -> None:
    outputs, targets = table(classes)
    p, o = [], []
    for row, true in zip(outputs.tolist(), targets.tolist(), strict=True):
        each = [math.exp(x) / sum(map(math.exp, row)) for x in row]
        if classes == 2:
            p, o = [*p, each[1]], [*o, float(true == 1)]
        else:
            p, o = [*p, max(each)], [*o, float(each.index(max(each)) == true)]
    error, means = by_hand(p, o)
    state = checked(Calibration().state(outputs, targets))
    assert Calibration().value(state) == pytest.approx(error, abs=1e-12)
    np.testing.assert_allclose(np.reshape(Reliability().value(state), (3, BINS)).T, means, atol=1e-12)


def test_labels_count_as_parts_of_their_row() -> None:
    outputs, targets = DRAW.standard_normal((200, 4)), (DRAW.random((200, 4)) < 0.3).astype(np.float64)
    p = [1 / (1 + math.exp(-x)) for x in outputs.reshape(-1).tolist()]
    error, _ = by_hand(p, targets.reshape(-1).tolist())
    state = checked(Calibration().state(outputs, targets))
    assert Calibration().value(state) == pytest.approx(error, abs=1e-12)
    assert state["count"].sum() == pytest.approx(200) and Calibration().fault(200, state) is None


@pytest.mark.parametrize("size", [1.0, 30.0, 800.0, 1e300])
def test_probabilities_at_both_ends_stay_in_the_bins(size: float) -> None:
    outputs = np.array([[0.0, size], [size, 0.0], [0.0, 0.0]])
    p, o = probabilities(outputs, np.array([1, 1, 0]))
    assert ((p >= 0) & (p <= 1)).all() and o.tolist() == [1.0, 1.0, 0.0]
    assert sums(p, o)["count"].sum() == 3


def test_one_row_and_a_perfect_model() -> None:
    state = checked(Calibration().state(np.array([[0.0, 0.0]]), np.array([1])))
    assert Calibration().value(state) == 0.5
    outputs, targets = np.array([[0.0, 1e3], [1e3, 0.0]]), np.array([1, 0])
    assert Calibration().value(checked(Calibration().state(outputs, targets))) == 0.0


@given(st.lists(st.integers(0, 40), min_size=BINS, max_size=BINS), st.integers(2, 30), st.integers(0, 999))
def test_no_bin_that_leaves_has_few_rows_and_the_error_does_not_grow(
    counts: list[int], least: int, seed: int
) -> None:
    if sum(counts) < least:
        return
    draw = np.random.default_rng(seed)
    p = np.concatenate([(k + draw.random(n)) / BINS for k, n in enumerate(counts)])
    state = checked(sums(np.minimum(p, 1.0), (draw.random(len(p)) < p).astype(np.float64)))
    found = joined(state, least)
    assert not ((found["count"] > 0) & (found["count"] < least)).any()
    for name, array in found.items():
        assert array.sum() == pytest.approx(state[name].sum())
    assert Calibration().value(found) <= Calibration().value(state) + 1e-12
    assert Calibration().fault(len(p), found) is None


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"count": np.full(BINS, 1e9)}, "another number of rows"),
        ({"observed": np.full(BINS, 1e6)}, "below 0 or above"),
        ({"predicted": np.full(BINS, -1.0)}, "below 0 or above"),
        ({"count": np.ones(3)}, "not of 10 bins"),
        ({"more": np.ones(BINS)}, "not of 10 bins"),
    ],
)
def test_sums_that_cannot_be_right_do_not_count(changed: dict[str, np.ndarray], words: str) -> None:
    state = checked(Calibration().state(*table(2, 50)))
    fault = Calibration().fault(50, state | changed)
    assert fault is not None and words in fault


# ---------------------------------------------------------------- Brier


@pytest.mark.parametrize("classes", [2, 4])
def test_the_brier_score_of_classes(classes: int) -> None:
    outputs, targets = table(classes, 60)
    expected = 0.0
    for row, true in zip(outputs.tolist(), targets.tolist(), strict=True):
        p = [math.exp(x) / sum(map(math.exp, row)) for x in row]
        each = [(value - (k == true)) ** 2 for k, value in enumerate(p)]
        expected += each[1] if classes == 2 else sum(each)
    of = goal_of(Spec(Inputs(Kind.TABLE, (1,)), classes), metrics=["brier"]).sums["brier"]
    assert float(of(torch.tensor(outputs), torch.tensor(targets))) == pytest.approx(expected)


def test_the_brier_score_of_labels() -> None:
    outputs, targets = DRAW.standard_normal((9, 3)), (DRAW.random((9, 3)) < 0.5).astype(np.float64)
    expected = sum(
        sum((1 / (1 + math.exp(-x)) - y) ** 2 for x, y in zip(a, b, strict=True)) / 3
        for a, b in zip(outputs.tolist(), targets.tolist(), strict=True)
    )
    of = goal_of(Spec(Inputs(Kind.TABLE, (1,)), 3, Target.LABELS), metrics=["brier"]).sums["brier"]
    assert float(of(torch.tensor(outputs), torch.tensor(targets))) == pytest.approx(expected)


def test_who_can_be_calibrated() -> None:
    for name in ("brier", "calibration", "reliability"):
        has = [target for target in Target if name in FIGURES[target]]
        assert has == [Target.CLASS, Target.LABELS], name
