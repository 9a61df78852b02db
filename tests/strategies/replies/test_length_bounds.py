"""How long an update may be, and how much weight a client may have."""

from __future__ import annotations

import math
from statistics import median_low

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strategies.replies.length_bounds import GROWTH, SINGLE, capped, quantile, reference

LENGTHS = st.floats(0.0, 1e12)
POSITIVE = st.floats(1e-6, 1e12)


def test_the_reference_is_the_largest_median_so_far() -> None:
    learnt = None
    seen = []
    for lengths in ([1.0, 2.0, 9.0], [3.0, 3.5, 0.1], [0.5, 0.4, 0.6], [1e9, 1e9, 1e9], [0.1, 1e9, 1e9]):
        learnt = reference(lengths, learnt)
        seen.append(learnt)
    assert seen == [2.0, 3.0, 3.0, 6.0, 12.0]  # 1e9 in most replies: doubles in each round


@pytest.mark.parametrize(
    ("lengths", "learnt", "scale", "want"),
    [
        ([], None, 1.0, None),
        ([], 2.0, 1.0, 2.0),
        ([0.0, 0.0, 0.0], None, 1.0, None),
        ([0.0, 0.0, 0.0], 2.0, 1.0, 2.0),
        ([1.0, 1e30], 1.0, 0.0, 1.0),  # one of two clients, later: what was learnt decides
        ([1e-9, 1.5], 1.0, 0.0, 1.0),
        ([1.2, 1.5], 1.0, 0.0, 1.2),
        ([1.0, 1e30], None, 20.0, 2.0),  # in the first round: the norm of the model
        ([1e-9, 1.0], None, 20.0, 1.0),
        ([1.0, 1e30], None, 0.0, 1.0),  # a model of zeros: the smaller one
        ([1e30], None, 20.0, SINGLE * 20.0),
        ([8.0, 9.0], None, 20.0, 8.0),  # both are longer than expected
        ([1e-3, 2e-3], None, 20.0, 2e-3),
        ([1.5], None, 20.0, 1.5),
        ([1e30], 1.0, 20.0, 2.0),
        ([1.0, 1.1, 1.2, 1e30], None, 0.0, 1.1),
        ([1.0, 2.0, 3.0, 1e30], 2.5, 0.0, 2.5),
    ],
)
def test_references(lengths: list[float], learnt: float | None, scale: float, want: float | None) -> None:
    assert reference(lengths, learnt, scale) == want


@given(st.lists(POSITIVE, min_size=2, max_size=9), st.lists(LENGTHS, max_size=8), st.none() | POSITIVE)
def test_a_minority_cannot_choose_the_reference(
    honest: list[float], hostile: list[float], learnt: float | None
) -> None:
    """It stays between the shortest and the longest honest update, or what was learnt."""
    hostile = hostile[: len(honest) - 1]
    got = reference([*honest, *hostile], learnt)
    assert got is not None
    known = [*honest] if learnt is None else [*honest, learnt]
    assert min(known) <= got <= max(known)
    if learnt is not None:
        assert learnt <= got <= GROWTH * learnt


@given(st.lists(POSITIVE, min_size=3, max_size=9))
def test_without_a_past_it_is_the_lower_median(lengths: list[float]) -> None:
    assert reference(lengths, None) == median_low(lengths)


@given(st.lists(LENGTHS, min_size=1, max_size=9), st.floats(0.01, 1.0))
def test_the_quantile_is_one_of_the_lengths(lengths: list[float], share: float) -> None:
    got = quantile(lengths, share)
    assert got in lengths
    assert sum(length <= got for length in lengths) >= share * len(lengths) - 1e-6
    assert sum(length < got for length in lengths) < share * len(lengths)


def test_quantiles_of_five() -> None:
    lengths = [5.0, 1.0, 4.0, 2.0, 3.0]
    assert [quantile(lengths, q) for q in (0.2, 0.5, 0.6, 0.8, 1.0)] == [1.0, 3.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize(
    ("counts", "max_share", "want"),
    [
        ([5.0, 5.0, 5.0], 0.4, [5.0, 5.0, 5.0]),
        ([1.0, 1.0, 1e12], 0.5, [1.0, 1.0, 2.0]),
        ([1.0, 10.0], 0.5, [1.0, 1.0]),
        ([1.0, 10.0], 0.6, [1.0, 1.5]),
        ([10.0], 0.5, [10.0]),
        ([8.0, 8.0, 1.0, 1.0, 1.0, 1.0], 0.3, [3.0, 3.0, 1.0, 1.0, 1.0, 1.0]),
        ([7.0, 2.0, 1.0], 0.1, [1.0, 1.0, 1.0]),
    ],
)
def test_capped_counts(counts: list[float], max_share: float, want: list[float]) -> None:
    assert capped(counts, max_share) == pytest.approx(want)


@given(st.lists(st.floats(1e-3, 1e12), min_size=1, max_size=12), st.floats(0.05, 1.0))
def test_no_count_has_more_than_its_share(counts: list[float], max_share: float) -> None:
    got = capped(counts, max_share)
    lowered = [new for new, old in zip(got, counts, strict=True) if new < old]
    assert all(new <= old for new, old in zip(got, counts, strict=True))
    assert max(got) / math.fsum(got) <= max(max_share, 1.0 / len(counts)) + 1e-9
    assert all(new == pytest.approx(max(got)) for new in lowered)  # those that are lowered become equal
    if lowered and max_share * len(counts) > 1.0:
        assert max(got) / math.fsum(got) == pytest.approx(max_share)
