"""What a client says of its scores: bins are large enough, no edge is a score, equal scores stay together."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstride.figures.score_bins import BITS, LARGEST, MAX_BINS, MAX_NUMBERS, bins_for, bins_of, packed, unpacked
from fedstride.messages.limits import MAX_LIST

PROPERTY = settings(max_examples=150, deadline=None, database=None, derandomize=True)
SPECIAL = (0.0, -0.0, 1e-9, 0.03, math.nextafter(0.03, 1), 15.5, 1e30, -1e30, 5e-324, LARGEST, math.inf, -math.inf)
SCORE = st.one_of(st.sampled_from(SPECIAL), st.floats(-3, 3), st.floats(allow_nan=False))
EXAMPLES = st.lists(st.tuples(SCORE, st.booleans()), min_size=1, max_size=60)


def bins(examples: list[tuple[float, bool]], most: int = 256, least: int = 1) -> Any:
    scores, positive = np.array([s for s, _ in examples]), np.array([p for _, p in examples])
    return bins_of(scores, positive, most, least)


@pytest.mark.slow
@PROPERTY
@given(EXAMPLES, st.integers(2, 20), st.integers(1, 25))
def test_any_scores(examples: list[tuple[float, bool]], most: int, least: int) -> None:
    found = bins(examples, most, least)
    assert (found.edges[:-1] < found.edges[1:]).all()
    sizes = found.negative + found.positive
    assert 1 <= len(sizes) <= most
    assert len(sizes) == 1 or sizes.min() >= least
    inside, finite = found.edges[1:-1], {max(-LARGEST, min(LARGEST, s)) for s, _ in examples}
    assert not finite & set(inside.tolist())
    for kind, counts in ((False, found.negative), (True, found.positive)):
        place = np.searchsorted(inside, [s for s, p in examples if p == kind])
        assert np.bincount(place, minlength=len(sizes)).tolist() == counts.tolist()
    assert found.edges[0] <= min(finite) and found.edges[-1] >= max(finite)
    assert unpacked(packed([found]))[0].edges.tolist() == found.edges.tolist()


@pytest.mark.slow
@PROPERTY
@given(EXAMPLES, st.integers(2, 20), st.integers(2, 25))
def test_what_a_policy_lets_leave_has_few_bits(examples: list[tuple[float, bool]], most: int, least: int) -> None:
    edges = bins(examples, most, least).edges
    assert (edges[0], edges[-1]) == (-LARGEST, LARGEST)
    assert all((math.frexp(edge)[0] * 2**BITS).is_integer() for edge in edges[1:-1])


@pytest.mark.slow
@PROPERTY
@given(EXAMPLES, st.integers(1, 5), st.randoms(use_true_random=False))
def test_the_order_of_examples_does_not_matter(
    examples: list[tuple[float, bool]], least: int, random: Any
) -> None:
    mixed = random.sample(examples, len(examples))
    assert packed([bins(mixed, 7, least)]) == packed([bins(examples, 7, least)])


@pytest.mark.parametrize("scale", [1e-9, 0.03, 1.0, 1e30])
@pytest.mark.parametrize(("count", "least"), [(300, 1), (5000, 1), (5000, 20), (777, 50)])
def test_bins_have_about_equal_mass(scale: float, count: int, least: int) -> None:
    scores = scale * np.random.default_rng(count).standard_normal(count)
    found = bins_of(scores, scores > 0, MAX_BINS, least)
    sizes = found.negative + found.positive
    assert sizes.max() <= 3 * max(least, -(-count // MAX_BINS))
    assert len(sizes) >= min(MAX_BINS, count // least) / 3


def test_few_scores_have_a_bin_each_and_frequent_ones_too() -> None:
    assert bins([(0.1, False), (0.2, True), (0.2, False), (7.0, True)]).negative.tolist() == [1.0, 1.0, 0.0]
    scores = np.concatenate([np.linspace(-1, 0, 50), np.full(400, 0.5), np.linspace(1, 2, 50)])
    found = bins_of(scores, scores > 0.7, 10)
    assert 400.0 in (found.negative + found.positive)


@pytest.mark.parametrize("score", [0.0, -4.0, 1e30, 3e-320, math.inf])
def test_one_example_or_one_score_is_one_bin(score: float) -> None:
    for count, least in ((1, 1), (1, 20), (30, 1), (30, 20)):
        found = bins_of(np.full(count, score), np.zeros(count, bool), 256, least)
        assert (found.negative.tolist(), found.positive.tolist()) == ([count], [0.0])
        assert found.edges[0] < found.edges[1]


def test_outer_edges_are_no_scores() -> None:
    for low, high in itertools.combinations((-1e30, -3.3, -1.0, 0.0, 1e-9, 0.5, 1.0, 16.0), 2):
        edges = bins([(low, False), (high, True)]).edges
        assert edges[0] < low < edges[1] < high < edges[-1]
        assert edges[0] >= low - max(abs(low) / 100, 1e-300) and edges[-1] <= high + max(abs(high) / 100, 1e-300)


def test_nan_is_no_score() -> None:
    with pytest.raises(ValueError, match="a score is NaN"):
        bins([(math.nan, True), (1.0, False)])


@pytest.mark.parametrize("columns", [1, 2, 3, 7, 10, 62, 100, 200])
def test_the_size_of_a_message_is_bounded(columns: int) -> None:
    scores = np.random.default_rng(1).standard_normal(2000)
    found = packed([bins_of(scores, scores > 0, bins_for(columns))] * columns)
    assert 2 * columns < len(found) <= MAX_NUMBERS
    assert bins_for(1) == MAX_BINS
    assert bins_for(1000) * 8 <= MAX_LIST


# ---------------------------------------------------------------- from a stranger

HOSTILE = {
    "nothing": ([], "no bins"),
    "NaN in an edge": ([1, 0, math.nan, 3, 4], "a number is not finite"),
    "an infinite edge": ([1, -math.inf, 0, 3, 4], "a number is not finite"),
    "no bin": ([0, 1], "0 bins, expected 1 to 256"),
    "half a bin": ([1.5, 0, 1, 2, 3], "1.5 bins, expected 1 to 256"),
    "less than no bin": ([-1, 0, 1, 2, 3], "-1 bins, expected 1 to 256"),
    "too many bins": ([257, *range(258), *[1] * 514], "257 bins, expected 1 to 256"),
    "very many bins": ([1e300, 0, 1], "1e+300 bins, expected 1 to 256"),
    "too few numbers": ([2, 0, 1, 2, 3, 4], "5 numbers after a number of 2 bins, expected 7"),
    "only a number of bins": ([3], "0 numbers after a number of 3 bins, expected 10"),
    "numbers left over": ([1, 0, 1, 2, 3, 1], "0 numbers after a number of 1 bins, expected 4"),
    "edges that fall": ([2, 0, 2, 1, 1, 1, 1, 1], "edges of bins that do not ascend"),
    "equal edges": ([2, 0, 0, 1, 1, 1, 1, 1], "edges of bins that do not ascend"),
    "a negative count": (
        [1, 0, 1, -3, 4],
        "a bin has a number of examples that is not a whole number from 0 to 1e",
    ),
    "half an example": (
        [1, 0, 1, 3, 0.5],
        "a bin has a number of examples that is not a whole number from 0 to 1e",
    ),
    "a huge count": ([1, 0, 1, 1e13, 4], "a bin has a number of examples that is not a whole number from 0 to 1e"),
    "no examples": ([1, 0, 1, 0, 0], "bins without examples"),
    "classes of different sizes": ([1, 0, 1, 3, 4, 1, 0, 1, 3, 5], "bins of classes with different numbers"),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_cannot_be_bins_has_one_line(kind: str) -> None:
    numbers, reason = HOSTILE[kind]
    with pytest.raises(ValueError) as caught:
        unpacked([float(number) for number in numbers])
    assert str(caught.value).startswith(reason)
    assert "\n" not in str(caught.value)


@PROPERTY
@given(st.lists(st.one_of(st.floats(), st.integers(-2, 4).map(float)), max_size=30))
def test_any_numbers_are_bins_or_a_line(numbers: list[float]) -> None:
    reason = None
    try:
        found = packed(unpacked(numbers))
    except ValueError as fault:
        found, reason = numbers, str(fault)
    assert found == numbers
    assert reason is None or ("\n" not in reason and len(reason) < 120)
