"""Sensitivity at a specificity: exact from scores, and from bins within an interval that holds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstride.figures.pooled_scores import sensitivity
from fedstride.figures.score_bins import bins_of, packed
from fedstride.figures.scores import EXACT, SENSITIVITIES, SPECIFICITIES


def by_hand(scores: list[float], positive: list[bool], percent: int) -> float:
    """The largest sensitivity over all thresholds with this specificity, each tried."""
    good = [s for s, p in zip(scores, positive, strict=True) if p]
    bad = [s for s, p in zip(scores, positive, strict=True) if not p]
    best = 0.0
    for threshold in [*scores, math.inf]:
        if 100 * sum(s < threshold for s in bad) >= percent * len(bad):
            best = max(best, sum(s >= threshold for s in good) / len(good))
    return best


sites = st.lists(
    st.lists(st.tuples(st.integers(-8, 8).map(float) | st.floats(-9, 9), st.booleans()), min_size=1, max_size=40),
    min_size=1,
    max_size=5,
)


@pytest.mark.slow
@given(sites, st.sampled_from(SPECIFICITIES), st.sampled_from([1, 3, 7]))
def test_the_figure_of_the_scores_is_within_the_error(
    found: list[list[tuple[float, bool]]], percent: int, least: int
) -> None:
    rows = [row for site in found for row in site]
    if len({positive for _, positive in rows}) < 2:
        return
    scores, positive = map(np.array, zip(*rows, strict=True))
    exact = EXACT[f"sensitivity_at_{percent}"](scores[:, None], positive[:, None])
    assert exact == by_hand(scores.tolist(), positive.tolist(), percent)
    sent = [packed([bins_of(*map(np.array, zip(*site, strict=True)), 256, least)]) for site in found]
    value, error = sensitivity(percent)(sent, [float(len(site)) for site in found])
    assert isinstance(value, float) and error is not None and 0.0 <= value <= 1.0
    assert abs(value - exact) <= error + 1e-9


@pytest.mark.parametrize("percent", SPECIFICITIES)
@pytest.mark.parametrize("seed", range(3))
def test_one_client_with_different_scores_is_exact(percent: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    positive = draw.random(200) < 0.3
    scores = draw.standard_normal(200) + positive
    found = sensitivity(percent)([packed([bins_of(scores, positive, 256)])], [200.0])
    assert found.error == pytest.approx(0.0, abs=1e-12)
    assert found.value == pytest.approx(by_hand(scores.tolist(), positive.tolist(), percent))


@pytest.mark.parametrize("sizes", [(500,), (300, 200, 100), (30, 40, 50, 60, 900)])
def test_the_error_of_many_rows_is_small(sizes: tuple[int, ...]) -> None:
    draw = np.random.default_rng(7)
    clients = []
    for size in sizes:
        positive = draw.random(size) < 0.4
        clients.append((draw.standard_normal(size) + 1.5 * positive, positive))
    sent = [packed([bins_of(*client, 256)]) for client in clients]
    value, error = sensitivity(90)(sent, list(map(float, sizes)))
    scores, positive = (np.concatenate(part) for part in zip(*clients, strict=True))
    exact = EXACT["sensitivity_at_90"](scores[:, None], positive[:, None])
    assert error is not None and error < 0.05 and abs(value - exact) <= error + 1e-9


def test_without_both_kinds_there_is_none() -> None:
    for positive in (np.ones(5, bool), np.zeros(5, bool)):
        scores = np.arange(5.0)
        assert math.isnan(EXACT["sensitivity_at_95"](scores[:, None], positive[:, None]))
        assert math.isnan(sensitivity(95)([packed([bins_of(scores, positive, 256)])], [5.0]).value)  # type: ignore[arg-type]


def test_the_names_say_the_specificity() -> None:
    assert {f"sensitivity_at_{percent}": percent for percent in SPECIFICITIES} == SENSITIVITIES
