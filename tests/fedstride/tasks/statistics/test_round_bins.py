"""Bins with round edges: each has enough rows, and the edges come from a tree that knows no data."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstride.tasks.statistics.round_bins import INFINITE, MOST, ZERO, bins_of, roundest, value_of

NUMBERS = st.lists(
    st.one_of(
        st.floats(-1e6, 1e6, width=32),
        st.floats(allow_nan=False, allow_infinity=False, width=32),
        st.integers(-20, 200).map(float),
    ),
    min_size=1,
    max_size=300,
)


def by_hand(values: list[float], least: int) -> list[float]:
    """The edges by the definition: fractions, and the rows of each node as a list."""
    enough, found = max(least, len(values) // MOST), []

    def split(rows: list[Fraction], low: tuple[int, int], high: tuple[int, int], sign: int) -> None:
        middle = roundest(low, high)
        if middle is None:
            return
        edge = sign * Fraction(value_of(middle))
        below, above = [v for v in rows if v < edge], [v for v in rows if v >= edge]
        inner, outer = (below, above) if sign > 0 else (above, below)
        if min(len(inner), len(outer)) >= enough:
            found.append(float(edge))
            split(inner, low, middle, sign)
            split(outer, middle, high, sign)
        elif len(inner) >= len(outer):
            split(rows, low, middle, sign)
        else:
            split(rows, middle, high, sign)

    exact = [Fraction(value) for value in values]
    below, above = [v for v in exact if v < 0], [v for v in exact if v >= 0]
    if min(len(below), len(above)) >= enough:
        found.append(0.0)
        split(above, ZERO, INFINITE, 1)
        split(below, ZERO, INFINITE, -1)
    elif len(above) >= len(below):
        split(exact, ZERO, INFINITE, 1)
    else:
        split(exact, ZERO, INFINITE, -1)
    return sorted(found)


@pytest.mark.slow
@given(NUMBERS, st.integers(1, 25))
def test_the_bins_are_those_of_the_definition(values: list[float], least: int) -> None:
    edges, counts = bins_of(np.array(values, np.float32), least)
    assert edges == by_hand(values, least)
    limits = [-np.inf, *edges, np.inf]
    assert counts == [sum(low <= value < high for value in values) for low, high in pairwise(limits)]
    assert len(counts) == 1 or min(counts) >= least


@given(NUMBERS, st.integers(1, 25), st.randoms())
def test_the_order_of_the_rows_does_not_matter(values: list[float], least: int, random: object) -> None:
    mixed = list(values)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert bins_of(np.array(values), least) == bins_of(np.array(mixed), least)


@given(st.integers(1, 10**6), st.integers(-12, 36), st.integers(2, 9))
def test_every_edge_is_a_number_of_few_digits(count: int, power: int, spread: int) -> None:
    rng = np.random.default_rng(count)
    edges, _ = bins_of(rng.normal(3, spread, 400) * 10.0**power, 20)
    for edge in edges:
        assert float(f"{edge:.3g}") == pytest.approx(edge, rel=1e-6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.repeat([0.0, 1.0], 50), [1.0]),  # indicators
        (np.repeat([0.7, 0.6], 50).astype(np.float32), [float(np.float32(0.7))]),  # a cell that is an edge
        (np.repeat([-1.0, 1.0], 50), [0.0]),
        (np.full(100, 5.0), []),  # one value
        (np.repeat([5.0, 6.0], [95, 5]), []),  # fewer than 20 have the other one
        (np.repeat([1e-20, 1e-30], 50), []),  # smaller than every edge
    ],
)
def test_edges_of_special_columns(values: np.ndarray, expected: list[float]) -> None:
    assert bins_of(values, 20)[0] == expected


def test_without_values_there_are_no_bins() -> None:
    assert bins_of(np.empty(0), 20) == ([], [])


@pytest.mark.parametrize("rows", [1_000, 40_000, 200_000])
def test_there_are_not_more_bins_than_said(rows: int) -> None:
    rng = np.random.default_rng(rows)
    for values in (rng.normal(size=rows), rng.pareto(0.3, rows), rng.lognormal(0, 4, rows)):
        assert len(bins_of(values, 20)[1]) <= MOST + 1


def test_sites_with_the_same_distribution_have_most_edges_in_common() -> None:
    rng = np.random.default_rng(0)
    for draw in (
        lambda: rng.normal(130, 17, 300),
        lambda: rng.lognormal(2, 1, 300),
        lambda: rng.uniform(size=300),
    ):
        one, other = (set(bins_of(draw(), 20)[0]) for _ in range(2))
        assert len(one & other) >= 4
