"""The paired comparison: by hand, and its errors and its power, simulated."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from lab.results.paired_differences import ERROR, LEAST, comparable, deviations, factor, paired, standing

DRAWS = 20_000
SEEDS = range(2, 11)
Draw = Callable[[np.random.Generator, tuple[int, ...]], np.ndarray]


def steps(least: int, most: int, per_one: int) -> Draw:
    """Whole numbers of steps of 1 / per_one, all equally frequent."""
    return lambda rng, shape: rng.integers(least, most, shape, endpoint=True) / per_one


def rounded(deviation: float, per_one: int) -> Draw:
    """Normal differences in steps of 1 / per_one; `deviation` in steps."""
    return lambda rng, shape: np.round(rng.normal(scale=deviation, size=shape)) / per_one


def accuracies(examples: int, share: float) -> Draw:
    """The difference of two accuracies of so many independent examples."""
    return lambda rng, shape: (
        (rng.binomial(examples, share, shape) - rng.binomial(examples, share, shape)) / examples
    )


EQUAL: dict[str, Draw] = {
    "normal": lambda rng, shape: rng.normal(scale=0.01, size=shape),
    "t3": lambda rng, shape: rng.standard_t(3, shape),
    "logistic": lambda rng, shape: rng.logistic(size=shape),
    "one example more or less": lambda rng, shape: rng.choice([-1, 1], shape) / 20,
    "seven examples more or less": lambda rng, shape: rng.choice([-7, 7], shape) / 250,
    "one example, or none": steps(-1, 1, 100),
    "mostly ties": lambda rng, shape: rng.choice([-1, 0, 1], shape, p=[0.1, 0.8, 0.1]) / 1_000,
    "up to two steps": steps(-2, 2, 50),
    "up to four steps": steps(-4, 4, 20),
    "up to ten steps": steps(-10, 10, 1_000),
    **{f"normal, {s} steps": rounded(s, 1_000) for s in (0.3, 0.7, 1.5, 4.0)},
    **{f"accuracy of {n}": accuracies(n, p) for n, p in ((20, 0.9), (33, 0.6), (250, 0.8), (1_000, 0.95))},
    "a failed seed in a hundred": lambda rng, shape: rng.normal(size=shape) + 50 * rng.choice(
        [-1, 0, 1], shape, p=[0.005, 0.99, 0.005]
    ),
}  # fmt: skip


def decided(differences: np.ndarray, methods: int = 2) -> np.ndarray:
    """Whether each row is decided, as `paired` decides it (the next test compares them)."""
    n = differences.shape[1]
    if n < LEAST:
        return np.zeros(len(differences), bool)
    return np.abs(differences.mean(1)) > factor(n, methods) * deviations(differences)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normal", "up to two steps", "accuracy of 33"])
def test_the_simulation_decides_as_the_product_does(name: str) -> None:
    rng = np.random.default_rng(5)
    for n, methods in itertools.product(SEEDS, (2, 3, 9)):
        rows = EQUAL[name](rng, (100, n)) + 0.01
        assert [paired(row.tolist(), methods).decided for row in rows] == decided(rows, methods).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("name", EQUAL)
def test_equal_expectations_are_decided_in_at_most_five_of_a_hundred_pages(name: str) -> None:
    rng = np.random.default_rng(len(name))
    for n in SEEDS:
        share = decided(EQUAL[name](rng, (DRAWS, n))).mean()
        assert share <= 0.05, (n, share)


@pytest.mark.slow
@pytest.mark.parametrize("methods", [3, 4, 8])
@pytest.mark.parametrize("name", ["normal", "t3", "steps"])
def test_several_equal_methods_have_a_winner_in_at_most_five_of_a_hundred_pages(name: str, methods: int) -> None:
    rng = np.random.default_rng(methods)
    draws: dict[str, Draw] = {
        "normal": lambda rng, shape: rng.normal(size=shape),
        "t3": lambda rng, shape: rng.standard_t(3, shape),
        "steps": lambda rng, shape: rng.binomial(40, 0.9, shape) / 40,
    }
    for n in (3, 4, 5, 10):
        figures = draws[name](rng, (4_000, methods, n))
        won = np.zeros(len(figures), bool)
        for first in range(methods):
            others = [second for second in range(methods) if second != first]
            pairs = [figures[:, first] - figures[:, second] for second in others]
            ahead = [decided(each, methods) & (each.mean(1) > 0) for each in pairs]
            won |= np.all(ahead, axis=0)
        assert won.mean() <= 0.05, (n, won.mean())


@pytest.mark.slow
def test_two_good_methods_among_worse_ones_do_not_win_by_chance() -> None:
    """The worse ones do not count against the two that are equal."""
    rng = np.random.default_rng(1)
    wins = 0
    for _ in range(2_000):
        figures = rng.normal(size=(4, 5)) + np.array([10.0, 10.0, 0.0, 0.0])[:, None]
        found = standing({name: dict(enumerate(row)) for name, row in zip("abcd", figures, strict=True)}, 4)
        assert found is not None and found.pairs[0].first in "ab"
        wins += found.won
    assert wins / 2_000 <= 0.05


@pytest.mark.parametrize(("n", "size", "least"), [(3, 6, 0.93), (4, 3, 0.9), (5, 2, 0.84), (5, 3, 0.98)])
def test_clear_differences_are_seen(n: int, size: float, least: float) -> None:
    """`size` in deviations of the differences; the figures of docs/commands.md."""
    rng = np.random.default_rng(n)
    rows = rng.normal(size=(DRAWS, n)) + size
    assert decided(rows).mean() >= least
    assert decided(np.round(20 * rows) / 1_000).mean() >= least - 0.03  # deviations of twenty steps


def test_the_interval_is_students_with_a_step() -> None:
    values = [1.0, 2.5, 0.5, 3.25, 1.5]  # the smallest gap is 0.5: of 1, 0.5 and 1.5, and of 0.5 and 0
    found = paired(values)
    deviation = math.sqrt(float(np.var(values, ddof=1)) + 0.5**2)
    half = float(stats.t.ppf(1 - ERROR / 2, 4)) * deviation / math.sqrt(5)
    assert (found.low, found.high) == (pytest.approx(1.75 - half), pytest.approx(1.75 + half))
    assert (found.mean, found.n, found.decided) == (1.75, 5, True)
    low, high = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert found.low < low and found.high > high  # never narrower than Student's


@pytest.mark.parametrize("values", [[5.0] * 2, [0.1, 0.1], [40.0, 41.0], [1e-9] * 2, [-3.0, -3.0], [7.0]])
def test_fewer_than_three_seeds_decide_nothing(values: list[float]) -> None:
    found = paired(values)
    assert (found.low, found.high, found.decided, found.needed) == (None, None, False, 3)


@pytest.mark.parametrize("size", [0.05, 0.3, 17.0])
def test_equal_differences_are_no_proof_until_there_are_seven(size: float) -> None:
    assert [n for n in SEEDS if paired([size] * n).decided] == [7, 8, 9, 10]
    assert paired([size] * 3).needed == 7
    # 0.1 + 0.2 and 0.3 differ by rounding only
    assert not paired([size, size * (1 + 1e-15), size * (1 - 1e-15), size]).decided


def test_no_difference_at_all_is_not_decided() -> None:
    found = paired([0.0] * 9)
    assert (found.mean, found.low, found.high, found.decided, found.needed) == (0.0, 0.0, 0.0, False, None)


def test_the_scale_does_not_matter() -> None:
    values = [0.031, 0.042, 0.025, 0.039]
    for scale in (1e-12, 100.0, 1e9):
        one, other = paired(values), paired([scale * value for value in values])
        assert other.low == pytest.approx(scale * (one.low or 0.0)) and other.needed == one.needed


# ---------------------------------------------------------------- methods and seeds


def by_seed(**seeds: list[int]) -> dict[str, dict[int, float]]:
    return {name: {seed: float(seed) for seed in each} for name, each in seeds.items()}


@pytest.mark.parametrize(
    ("seeds", "kept", "apart"),
    [
        ({"a": [1, 2, 3], "b": [1, 2, 3], "c": [1]}, "ab", "c"),
        ({"a": [1, 2, 3, 4], "b": [7], "c": [2, 3, 4, 5]}, "ac", "b"),
        ({"a": [1, 2], "b": [2, 3]}, "ab", ""),
        ({"a": [1, 2], "b": [3, 4]}, "", "ab"),
        ({"a": [1, 2, 3], "b": [1, 2, 3], "c": [1, 2, 3, 4], "d": [9, 8, 7]}, "abc", "d"),
    ],
)
def test_methods_without_enough_common_seeds_are_left_out(
    seeds: dict[str, list[int]], kept: str, apart: str
) -> None:
    assert comparable(by_seed(**seeds)) == (tuple(kept), tuple(apart))


def test_only_common_seeds_decide_who_is_ahead() -> None:
    """The mean of all seeds of b is higher, because its easy seeds are its own."""
    a = {1: 0.80, 2: 0.82, 3: 0.81, 4: 0.83}
    b = {1: 0.70, 2: 0.73, 3: 0.70, 4: 0.72, 5: 0.99, 6: 0.99, 7: 0.99}
    found = standing({"b": b, "a": a}, 2)
    assert found is not None and found.won
    (pair,) = found.pairs
    assert (pair.first, pair.second, pair.seeds) == ("a", "b", (1, 2, 3, 4))
    assert pair.alone == {"a": (), "b": (5, 6, 7)}
    assert pair.result.mean == pytest.approx(0.1025)


def test_nobody_is_ahead_in_a_circle() -> None:
    a, b, c = {1: 2.0, 2: 0.0}, {2: 1.0, 3: 0.0}, {3: 1.0, 1: 0.0}  # b before a, c before b, a before c
    c[1] = 1.0
    found = standing({"a": a, "b": b, "c": c}, 3)
    assert found is not None and not found.won
