"""A site that differs is named, and of sites that are alike hardly ever one."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from fedstride.tasks.statistics.description import (
    BELOW,
    BESIDE,
    LACKS,
    DescribedColumn,
    Description,
    Told,
    of_categories,
    of_numbers,
)
from lab.sites.differing_sites import LEVEL, outliers
from lab.sites.histograms import Histogram, difference, histogram_of

LEAST = 20
ASKED = [
    DescribedColumn("age"),
    DescribedColumn("crp"),
    DescribedColumn("pressure"),
    DescribedColumn("stage", tuple("abcd")),
    DescribedColumn("ill", ("y", "n"), True),
]

Draw = Callable[[np.random.Generator, int], list[np.ndarray]]


def columns(rng: np.random.Generator, n: int) -> list[np.ndarray]:
    return [
        rng.normal(54, 9, n).round(),
        rng.lognormal(2, 1, n),
        np.where(rng.random(n) < 0.07, np.nan, rng.normal(130, 17, n)),
        rng.choice(4, n, p=[0.5, 0.3, 0.15, 0.05]),
        (rng.random(n) < 0.3).astype(int),
    ]


def of(values: Sequence[np.ndarray]) -> Description:
    told = [
        of_categories(each, len(column.categories), LEAST) if column.categories else of_numbers(each, LEAST)
        for each, column in zip(values, ASKED, strict=True)
    ]
    return Description(LEAST, False, len(values[0]), True, 0, tuple(told))


def named(sites: Sequence[Description]) -> set[tuple[str, str]]:
    said = {str(at): each for at, each in enumerate(sites)}
    return {(each.site, ASKED[each.column].name) for each in outliers(said, ASKED)}


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(300, 300, 300, 300), (120, 200, 290, 303)])
def test_of_four_equal_sites_one_is_named_in_at_most_five_percent(sizes: tuple[int, ...]) -> None:
    rng, times = np.random.default_rng(47), 300
    alarms = sum(bool(named([of(columns(rng, size)) for size in sizes])) for _ in range(times))
    assert alarms <= times * LEVEL + 2 * np.sqrt(times * LEVEL * (1 - LEVEL))


@pytest.mark.parametrize("factor", [0.1, 10.0, 1 / 38.67, 88.4])
@pytest.mark.parametrize("sizes", [(300, 150, 300, 300), (200, 90, 90, 90)])
def test_a_site_with_another_unit_is_named_and_no_other(factor: float, sizes: tuple[int, ...]) -> None:
    for seed in range(5):
        rng = np.random.default_rng(seed)
        sites = [columns(rng, size) for size in sizes]
        sites[1][1] = sites[1][1] * factor
        found = named([of(each) for each in sites])
        assert {each for each in found if each[1] == "crp"} == {("1", "crp")}


def test_a_site_with_other_shares_of_a_category_is_named() -> None:
    rng = np.random.default_rng(3)
    sites = [columns(rng, 300) for _ in range(4)]
    sites[2][3] = rng.choice(4, 300, p=[0.1, 0.3, 0.3, 0.3])
    sites[0][4] = (rng.random(300) < 0.7).astype(int)
    assert named([of(each) for each in sites]) == {("2", "stage"), ("0", "ill")}


def test_of_two_sites_that_differ_both_are_named() -> None:
    rng = np.random.default_rng(4)
    one, other = columns(rng, 200), columns(rng, 200)
    other[0] = other[0] + 25
    assert named([of(one), of(other)]) == {("0", "age"), ("1", "age")}


def test_a_site_alone_or_with_few_rows_or_without_the_column_is_not_compared() -> None:
    rng = np.random.default_rng(5)
    one = of(columns(rng, 200))
    lacks = Description(LEAST, False, 200, True, 0, (Told(LACKS), *of(columns(rng, 200)).columns[1:]))
    assert named([one]) == set()
    assert named([one, Description(LEAST, few=True)]) == set()
    assert ("1", "age") not in named([one, lacks])


def test_without_common_edges_the_limits_decide() -> None:
    below = Histogram(np.array([40, 60]), (0.5,))
    above = Histogram(np.array([45, 55]), (80.0,))
    assert difference(below, [above]) == 1.0  # the 60 may lie anywhere above 0.5
    sure = Histogram(np.array([40, 40, 20]), (0.5, 1.0))
    assert difference(sure, [above]) < 1e-5  # type: ignore[operator]  # at least 80 are below 1, and at most 45
    same = Histogram(np.array([100]), ())
    assert difference(same, [Histogram(np.array([90]), ())]) is None  # nothing is said


def test_categories_that_one_site_does_not_say_are_joined_at_all() -> None:
    told = Told(counts=(120, BESIDE, BELOW))
    histogram = histogram_of(told, 200, 3)
    assert histogram is not None and histogram.counts.tolist() == [120, 0, 0, 80]
