"""Intervals of figures: against computations pair by pair and row by row, and how often they contain the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstride.figures import intervals
from fedstride.figures.scores import exact_auroc


def pair_by_pair(scores: np.ndarray, positive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """DeLong, Biometrics 1988, equations as printed: the areas and their covariance."""
    hits, others = scores[:, positive], scores[:, ~positive]
    models, m, n = len(scores), hits.shape[1], others.shape[1]
    psi = np.empty((models, m, n))
    for r in range(models):
        for i in range(m):
            for j in range(n):
                x, y = hits[r, i], others[r, j]
                psi[r, i, j] = 1.0 if x > y else 0.5 if x == y else 0.0
    areas = psi.mean((1, 2))
    of_hits, of_others = psi.mean(2), psi.mean(1)
    covariance = np.empty((models, models))
    for r in range(models):
        for s in range(models):
            s10 = sum((of_hits[r, i] - areas[r]) * (of_hits[s, i] - areas[s]) for i in range(m)) / (m - 1)
            s01 = sum((of_others[r, j] - areas[r]) * (of_others[s, j] - areas[s]) for j in range(n)) / (n - 1)
            covariance[r, s] = s10 / m + s01 / n
    return areas, covariance


@given(
    st.integers(0, 10**6),
    st.integers(1, 3),
    st.integers(2, 12),
    st.integers(2, 12),
    st.sampled_from([1, 3, 10**6]),
)
def test_delong_is_that_of_all_pairs(seed: int, models: int, m: int, n: int, distinct: int) -> None:
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, distinct, (models, m + n)) / 7.0 - 3.0
    positive = rng.permutation(np.arange(m + n) < m)
    found = intervals.areas(scores, positive)
    areas, covariance = pair_by_pair(scores, positive)
    np.testing.assert_allclose(found.values, areas, rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.covariance, covariance, rtol=0, atol=1e-14)
    for value, row in zip(found.values, scores, strict=True):
        assert value == pytest.approx(exact_auroc(row[:, None], positive[:, None]), abs=1e-14)


def test_scores_without_a_bound_are_ranked() -> None:
    scores = np.array([[-math.inf, 0.0, math.inf, 5e-324, -0.0, math.inf]])
    positive = np.array([False, False, True, True, True, False])
    areas, covariance = pair_by_pair(scores, positive)
    found = intervals.areas(scores, positive)
    np.testing.assert_allclose(found.values, areas)
    np.testing.assert_allclose(found.covariance, covariance)


@pytest.mark.parametrize("positive", [[True, True], [False, False]])
def test_one_kind_has_no_area(positive: list[bool]) -> None:
    with pytest.raises(ValueError, match="both kinds"):
        intervals.areas(np.zeros((1, 2)), np.array(positive))


def test_one_row_of_a_kind_has_no_interval() -> None:
    found = intervals.areas(np.array([[0.2, 0.1, 0.5]]), np.array([True, False, False]))
    assert found.values[0] == 0.5
    assert not intervals.of_area(found.of([1.0])).known
    assert not intervals.of_difference(found.of([1.0])).known


def test_separated_kinds_have_no_interval_and_equal_models_no_difference() -> None:
    scores = np.array([[0.0, 1.0, 2.0, 3.0], [0.0, 10.0, 20.0, 30.0]])
    found = intervals.areas(scores, np.array([False, False, True, True]))
    assert found.values.tolist() == [1.0, 1.0]
    assert not intervals.of_area(found.of([1.0, 0.0])).known
    assert not intervals.of_difference(found.of([1.0, -1.0])).known  # both separate them: nothing was measured


def test_an_interval_of_an_area_is_inside_its_range() -> None:
    for value, variance in ((0.99, 1e-3), (0.01, 1e-3), (0.5, 0.25)):
        low, high = intervals.of_area(intervals.Estimate(value, variance, 20.0))
        assert 0.0 < low < value < high < 1.0


@pytest.mark.parametrize(("m", "n", "distance"), [(40, 60, 1.0), (15, 120, 1.5), (30, 30, 0.3), (100, 10, 1.0)])
def test_an_interval_of_an_area_has_the_truth_in_it_as_often_as_it_says(m: int, n: int, distance: float) -> None:
    rng = np.random.default_rng(m)
    truth = 0.5 * (1 + math.erf(distance / 2))  # of two normal distributions at this distance
    inside = 0
    for _ in range(1000):
        scores = np.concatenate([rng.normal(distance, 1, m), rng.normal(0, 1, n)])[None]
        low, high = intervals.of_area(intervals.areas(scores, np.arange(m + n) < m).of([1.0]))
        inside += low <= truth <= high
    assert 930 <= inside <= 975


def test_a_paired_difference_has_the_truth_in_it_as_often_as_it_says() -> None:
    rng = np.random.default_rng(4)
    inside = 0
    for _ in range(1000):
        shared = np.concatenate([rng.normal(1, 1, 50), rng.normal(0, 1, 50)])
        scores = shared + rng.normal(0, 0.5, (2, 100))
        low, high = intervals.of_difference(intervals.areas(scores, np.arange(100) < 50).of([1.0, -1.0]))
        inside += low <= 0.0 <= high
    assert 930 <= inside <= 970


@pytest.mark.parametrize("level", [0.5, 0.95, 0.99])
def test_quantiles_of_student(level: float) -> None:
    stdtrit = pytest.importorskip("scipy.special").stdtrit
    for freedom, error in ((3.0, 0.01), (9.0, 1e-4), (33.3, 1e-6), (1e6, 1e-9)):
        assert intervals.student(level, freedom) == pytest.approx(stdtrit(freedom, (1 + level) / 2), rel=error)


@pytest.mark.slow
def test_draws_keep_the_size_of_each_stratum_and_are_the_same_every_time() -> None:
    sizes = [3, 0, 1, 500]
    found = np.concatenate(list(intervals.resampled(sizes, seed=5, draws=4000)))
    assert found.shape == (4000, 504)
    assert (found[:, :3].sum(1) == 3).all()
    assert (found[:, 3] == 1).all()
    assert (found[:, 4:].sum(1) == 500).all()
    assert found[:, :3].var(0) == pytest.approx(np.full(3, 2 / 3), rel=0.1)  # n (1/n) (1 - 1/n)
    again = np.concatenate(list(intervals.resampled(sizes, seed=5, draws=4000)))
    assert np.array_equal(found, again)
    assert not np.array_equal(found, np.concatenate(list(intervals.resampled(sizes, seed=6, draws=4000))))


def test_a_bootstrap_of_a_share_has_the_binomial_deviation() -> None:
    hits = np.arange(200) < 60
    found = intervals.bootstrap([200], lambda counts: np.array([counts @ hits / counts.sum()]), seed=1)
    assert found.shape == (intervals.DRAWS, 1)
    assert found.mean() == pytest.approx(0.3, abs=0.005)
    assert found.std() == pytest.approx(math.sqrt(0.3 * 0.7 / 200), rel=0.1)
    low, high = intervals.of_draws(found[:, 0])
    assert (low, high) == pytest.approx((0.237, 0.364), abs=0.01)


def test_draws_without_the_figure() -> None:
    values = np.linspace(0.0, 1.0, 100)
    values[::30] = math.nan  # 4 %
    assert intervals.of_draws(values).known
    values[::15] = math.nan  # 7 %
    assert not intervals.of_draws(values).known
    assert not intervals.of_draws(np.full(3, math.nan)).known
    assert not intervals.of_draws(np.zeros(0)).known


def test_enough_rows_of_each_kind() -> None:
    assert intervals.enough(10)
    assert not intervals.enough(9)
    assert intervals.enough(400, [10, 390])
    assert not intervals.enough(400, [9, 391])


@pytest.mark.parametrize(("missing", "known"), [(0, True), (50, True), (51, False), (1000, False)])
def test_the_variance_of_a_bootstrap_is_known_where_the_interval_is(missing: int, known: bool) -> None:
    draws = np.random.default_rng(2).normal(3.0, 0.5, 1000)
    draws[:missing] = np.nan
    found = intervals.variance_of_draws(draws)
    assert math.isnan(found) is not known and intervals.of_draws(draws).known is known
    if known:
        assert found == pytest.approx(float(draws[missing:].var(ddof=1)))
