"""Intervals by the number of rows: against other computations, and how often they contain the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from fedstride.figures.intervals_by_counts import deviation_from_bins, deviation_of_area, of_area, of_rate
from fedstride.figures.score_bins import bins_of, packed
from fedstride.figures.scores import exact_auroc


@pytest.mark.parametrize(("right", "rows"), [(0, 1), (1, 1), (3, 7), (29, 29), (0, 250), (812, 1000)])
def test_the_interval_of_a_share_is_wilsons(right: int, rows: int) -> None:
    want = stats.binomtest(right, rows).proportion_ci(method="wilson")
    np.testing.assert_allclose(of_rate(right / rows, rows), (want.low, want.high), atol=1e-12)


@pytest.mark.parametrize(
    ("area", "negative", "positive", "want"),
    [  # by hand: A = 0.8 has Q1 = 2/3 and Q2 = 32/45; A = 0.5 has Q1 = Q2 = 1/3
        (0.8, 10, 5, math.sqrt((0.16 + 4 * (2 / 3 - 0.64) + 9 * (32 / 45 - 0.64)) / 50)),
        (0.5, 40, 60, math.sqrt((0.25 + 98 * (1 / 3 - 0.25)) / 2400)),
        (0.5, 1, 1, 0.5),
    ],
)
def test_the_deviation_of_an_auroc_by_hand(area: float, negative: int, positive: int, want: float) -> None:
    assert math.isclose(deviation_of_area(area, negative, positive), want, rel_tol=1e-12)


@pytest.mark.parametrize("area", [0.0, 1.0])
def test_few_rows_in_perfect_order_prove_little(area: float) -> None:
    widths = []
    for rows in (2, 8, 100):
        low, high = of_area(area, deviation_of_area(area, rows, rows))
        assert low <= area <= high
        widths.append(high - low)
    assert widths[0] > 0.4 and widths == sorted(widths, reverse=True) and widths[-1] < 0.05


@pytest.mark.parametrize(("negative", "positive", "apart"), [(30, 30, 0.5), (20, 60, 1.5), (100, 15, 1.0)])
def test_the_interval_contains_the_truth_about_as_often_as_it_says(
    negative: int, positive: int, apart: float
) -> None:
    truth = stats.norm.cdf(apart / math.sqrt(2))
    rng = np.random.default_rng(1)
    labels = np.repeat([False, True], [negative, positive])[:, None]
    inside = 0
    for _ in range(400):
        scores = rng.normal(size=(negative + positive, 1)) + apart * labels
        area = exact_auroc(scores, labels)
        low, high = of_area(area, deviation_of_area(area, negative, positive))
        inside += low <= truth <= high
    assert 0.92 <= inside / 400 <= 0.99


def test_bins_of_several_clients_count_all_their_rows() -> None:
    rng = np.random.default_rng(2)
    clients = [packed([bins_of(rng.normal(size=n), rng.random(n) < 0.3, 9)]) for n in (40, 11, 5)]
    counts = [np.array(each[1 + 1 + int(each[0]) :]).reshape(2, -1).sum(1) for each in clients]
    want = deviation_of_area(0.7, *np.sum(counts, 0))
    assert deviation_from_bins(0.7, clients) == want
    two = [bins_of(rng.normal(size=9), rng.random(9) < 0.5, 3) for _ in range(2)]
    assert deviation_from_bins(0.7, [packed(two)]) is None
    assert deviation_from_bins(0.7, [packed([bins_of(np.arange(3.0), np.zeros(3, bool), 3)])]) is None
