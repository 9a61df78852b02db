"""The chi-square test against its definition: the density, integrated, and the statistic in fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.sites.chi_square import homogeneity, joined, survival


def integrated(x: float, degrees: int) -> float:
    """The integral of the density from x on, by Simpson's rule on [x, x + 400]."""
    t = np.linspace(x, x + 400, 400_001)
    log_density = (degrees / 2 - 1) * np.log(t) - t / 2 - degrees / 2 * math.log(2) - math.lgamma(degrees / 2)
    weights = np.ones_like(t)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return float((np.exp(log_density) * weights).sum() * (t[1] - t[0]) / 3)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 12, 31])
@pytest.mark.parametrize("x", [0.5, 3.841, 11.07, 40.0, 90.0])
def test_the_survival_function_is_the_integral_of_the_density(x: float, degrees: int) -> None:
    assert survival(x, degrees) == pytest.approx(integrated(x, degrees), rel=1e-6, abs=1e-14)


@pytest.mark.parametrize(("degrees", "quantile"), [(1, 3.841459), (2, 5.991465), (5, 11.070498), (10, 18.307038)])
def test_published_quantiles_of_five_percent(degrees: int, quantile: float) -> None:
    assert survival(quantile, degrees) == pytest.approx(0.05, abs=1e-7)


@given(st.floats(0, 5000), st.integers(1, 200))
def test_it_is_a_probability_that_falls(x: float, degrees: int) -> None:
    p = survival(x, degrees)
    assert 0 <= p <= 1
    assert survival(x + 1, degrees) * (1 - 1e-12) <= p <= survival(x, degrees + 1) * (1 + 1e-12)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 400)), min_size=2, max_size=12))
def test_the_p_value_is_that_of_the_statistic_in_fractions(pairs: list[tuple[int, int]]) -> None:
    counts = np.array(pairs).T
    p, table = homogeneity(counts), joined(counts)
    assert table.sum() == counts.sum()
    if p is None:
        assert table.shape[1] < 2 or not table.sum(1).all()
        return
    rows, columns = [[Fraction(int(v)) for v in row] for row in table], table.shape[1]
    total = sum(map(sum, rows))
    expected = [[sum(row) * (rows[0][j] + rows[1][j]) / total for j in range(columns)] for row in rows]
    assert min(map(min, expected)) >= 5
    statistic = sum((rows[i][j] - expected[i][j]) ** 2 / expected[i][j] for i in range(2) for j in range(columns))
    assert p == pytest.approx(survival(float(statistic), columns - 1), rel=1e-9, abs=1e-300)


def test_two_equal_groups_are_alike_and_two_apart_are_not() -> None:
    assert homogeneity(np.array([[30, 40, 50], [30, 40, 50]])) == 1.0
    assert homogeneity(np.array([[100, 0], [0, 100]])) < 1e-40  # type: ignore[operator]
    assert homogeneity(np.array([[100, 3], [0, 0]])) is None
