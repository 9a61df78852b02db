"""AUROC and average precision from the bins of many clients, against all pairs of all scores in float64."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstride.figures.pooled_scores import auroc, average_precision
from fedstride.figures.score_bins import bins_of, packed

PROPERTY = settings(max_examples=200, deadline=None, database=None, derandomize=True)

Client = tuple[np.ndarray, np.ndarray]
"""Scores and which are positive."""


def said(clients: list[Client], most: int = 256, least: int = 1) -> list[list[float]]:
    return [packed([bins_of(scores, positive, most, least)]) for scores, positive in clients]


def sizes(clients: list[Client]) -> list[float]:
    return [float(len(scores)) for scores, _ in clients]


def joined(clients: list[Client], weights: list[float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """All scores, which are positive, and the mass of each example."""
    masses = [np.full(len(s), w / len(s)) for (s, _), w in zip(clients, weights, strict=True)]
    return *(np.concatenate(part) for part in zip(*clients, strict=True)), np.concatenate(masses)


def all_pairs(clients: list[Client], weights: list[float]) -> float:
    scores, positive, mass = joined(clients, weights)
    if positive.all() or not positive.any():
        return math.nan
    right = [
        mass[i] * mass[j] * (1.0 if scores[i] > scores[j] else 0.5 if scores[i] == scores[j] else 0.0)
        for i, j in itertools.product(np.flatnonzero(positive), np.flatnonzero(~positive))
    ]
    return math.fsum(right) / (math.fsum(mass[positive]) * math.fsum(mass[~positive]))


def all_thresholds(clients: list[Client], weights: list[float]) -> float:
    scores, positive, mass = joined(clients, weights)
    if positive.all() or not positive.any():
        return math.nan
    parts = []
    for i in np.flatnonzero(positive):
        above = scores >= scores[i]
        parts.append(mass[i] * math.fsum(mass[above & positive]) / math.fsum(mass[above]))
    return math.fsum(parts) / math.fsum(mass[positive])


FIGURES: Any = [(auroc, all_pairs), (average_precision, all_thresholds)]


def check(clients: list[Client], weights: list[float] | None = None, most: int = 256, least: int = 1) -> list[Any]:
    """Within the stated error of all pairs, and in [0, 1]. Returns the figures and the errors."""
    found = []
    weights = sizes(clients) if weights is None else weights
    for figure, exact in FIGURES:
        value, error = figure(said(clients, most, least), weights)
        want = exact(clients, weights)
        if math.isnan(want):
            assert math.isnan(value) and math.isnan(error)
        else:
            assert 0.0 <= value <= 1.0 and 0.0 <= error <= 1.0
            assert abs(value - want) <= error + 1e-12
        found.append((value, error, want))
    return found


SCALES = {
    "near zero": lambda rng, n: 0.03 * rng.random(n),
    "beyond 15": lambda rng, n: 15.0 + 30.0 * rng.random(n),
    "tiny": lambda rng, n: 1e-9 * rng.standard_normal(n),
    "huge": lambda rng, n: 1e30 * rng.standard_normal(n),
    "from tiny to huge": lambda rng, n: 10.0 ** rng.uniform(-9, 30, n),
    "ties": lambda rng, n: rng.integers(-2, 3, n) / 4.0,
    "one score": lambda rng, n: np.full(n, 0.7),
    "neighbours in float64": lambda rng, n: 1.0 + np.finfo(float).eps * rng.integers(0, 5, n),
}


def made(kind: str, counts: list[int], seed: int = 0) -> list[Client]:
    rng = np.random.default_rng(seed)
    clients = []
    for count in counts:
        scores = SCALES[kind](rng, count)
        ranks = np.argsort(np.argsort(scores))
        clients.append((scores, ranks + count * rng.random(count) > count))
    return clients


@pytest.mark.slow
@pytest.mark.parametrize("kind", SCALES)
@pytest.mark.parametrize("counts", [[1], [12], [300], [1, 1, 1], [1, 200, 7], [30] * 9])
def test_the_error_is_at_most_as_stated(kind: str, counts: list[int]) -> None:
    clients = made(kind, counts)
    for most, least in ((256, 1), (5, 1), (256, 8), (2, 20)):
        check(clients, None, most, least)
        check(clients, [0.1 + k for k in range(len(counts))], most, least)


@pytest.mark.parametrize("kind", [kind for kind in SCALES if "neighbours" not in kind])
@pytest.mark.parametrize("count", [1, 2, 40, 256])
def test_one_client_with_a_bin_for_each_score_is_exact(kind: str, count: int) -> None:
    """Equal scores are one bin; of average precision the server does not know that they are equal."""
    (area, area_error, want), (precision, _, exact) = check(made(kind, [count], seed=3))
    if not math.isnan(want):
        assert area == pytest.approx(want, abs=1e-15) and precision == pytest.approx(exact, abs=1e-14)
        assert kind in ("ties", "one score") or area_error == 0.0


@pytest.mark.parametrize("shift", [0.04, 20.0, 1e-9, 1e30])
@pytest.mark.parametrize("weights", [None, [3.0, 1.0, 7.0]])
def test_clients_whose_bins_do_not_overlap_give_the_exact_figure(
    shift: float, weights: list[float] | None
) -> None:
    clients = [(scores / 30 * shift + k * shift, positive) for k, (scores, positive) in enumerate(
        made("near zero", [40, 3, 110], seed=2)
    )]  # fmt: skip
    for value, error, want in check(clients, weights):
        assert value == pytest.approx(want, abs=1e-14)
        assert error == pytest.approx(0.0, abs=1e-14)


RANGES = {"near zero": (0.0, 0.03), "beyond 15": (16.0, 60.0), "tiny": (1e-9, 2e-9), "huge": (-1e30, 1e30)}


@pytest.mark.parametrize("scale", RANGES)
@pytest.mark.parametrize("weights", [None, [0.1, 0.2, 0.7], [1e-9, 1e12, 3.0]])
@pytest.mark.parametrize("counts", [[2, 2, 2], [4, 90, 250]])
def test_a_perfect_ranking_is_exactly_1_and_its_reverse_exactly_0(
    scale: str, weights: list[float] | None, counts: list[int]
) -> None:
    low, high = RANGES[scale]
    clients = []
    for count in counts:
        below = low + (high - low) * np.linspace(0.0, 0.45, count // 2)
        clients.append((np.concatenate([below, below + 0.55 * (high - low)]), np.arange(count) >= count // 2))
    own = sizes(clients) if weights is None else weights
    middle = [low + 0.46 * (high - low), low + 0.54 * (high - low)]
    clients = [(np.append(s, middle), np.append(p, [False, True])) for s, p in clients]
    assert auroc(said(clients), own) == (1.0, 0.0)
    assert average_precision(said(clients), own) == (1.0, 0.0)
    reverse = [(-scores, positive) for scores, positive in clients]
    assert auroc(said(reverse), own) == (0.0, 0.0)


CLIENTS = st.lists(
    st.lists(
        st.tuples(
            st.one_of(st.sampled_from([0.0, 0.01, 0.0100001, 15.5, 16.0, 1e-9, 1e30, -1e30]), st.floats(-4, 4)),
            st.booleans(),
        ),
        min_size=1,
        max_size=25,
    ),
    min_size=1,
    max_size=6,
)


@pytest.mark.slow
@PROPERTY
@given(CLIENTS, st.integers(2, 12), st.integers(1, 8), st.data())
def test_the_bounds_hold_for_any_clients(examples: Any, most: int, least: int, data: Any) -> None:
    clients = [(np.array([s for s, _ in each]), np.array([p for _, p in each])) for each in examples]
    weight = st.one_of(st.floats(1e-3, 1e12), st.integers(1, 1000).map(float))
    weights = data.draw(st.none() | st.lists(weight, min_size=len(clients), max_size=len(clients)))
    check(clients, weights, most, least)


@pytest.mark.slow
@PROPERTY
@given(CLIENTS, st.integers(2, 12), st.randoms(use_true_random=False))
def test_the_order_of_clients_changes_no_bit(examples: Any, most: int, random: Any) -> None:
    clients = [(np.array([s for s, _ in each]), np.array([p for _, p in each])) for each in examples]
    weights = [0.1 * (k + 1) for k in range(len(clients))]
    order = list(range(len(clients)))
    random.shuffle(order)
    for figure, _ in FIGURES:
        one = figure(said(clients, most), weights)
        other = figure([said(clients, most)[k] for k in order], [weights[k] for k in order])
        assert repr(one) == repr(other)


@pytest.mark.slow
@PROPERTY
@given(CLIENTS)
def test_auroc_and_its_error_as_in_the_equations(examples: Any) -> None:
    """Those of the docstring, pair by pair of bins and of pieces, in exact arithmetic."""
    clients = [(np.array([s for s, _ in each]), np.array([p for _, p in each])) for each in examples]
    segments = [
        (low, high, int(n), int(p))
        for scores, positive in clients
        for found in [bins_of(scores, positive, 4)]
        for low, high, n, p in zip(found.edges[:-1], found.edges[1:], found.negative, found.positive, strict=True)
    ]
    total = sum(n for *_, n, _ in segments) * sum(p for *_, p in segments)
    if not total:
        return
    right = overlapping = 0
    for (low, high, _, p), (other_low, other_high, n, _) in itertools.product(segments, segments):
        right += p * n if other_high <= low else 0
        overlapping += p * n if other_high > low and other_low < high else 0
    edges = sorted({edge for low, high, _, _ in segments for edge in (low, high)})
    pieces = {edge: [Fraction(0), Fraction(0)] for edge in edges}
    for low, high, n, p in segments:
        own = [edge for edge in edges if low <= edge < high]
        for edge in own:
            pieces[edge][0] += Fraction(n, len(own))
            pieces[edge][1] += Fraction(p, len(own))
    spread, below = Fraction(0), Fraction(0)
    for n, p in (pieces[edge] for edge in edges):
        spread += p * (below + n / 2)
        below += n
    want = min(max(spread, Fraction(right)), Fraction(right + overlapping)) / total
    ends = (Fraction(right, total), Fraction(right + overlapping, total))
    value, error = auroc(said(clients, most=4), sizes(clients))
    assert value == pytest.approx(float(want), abs=1e-14)
    assert error == pytest.approx(float(max(want - ends[0], ends[1] - want)), abs=1e-14)


@pytest.mark.parametrize(
    ("nodes", "rows", "least", "near"), [(3, 38, 10, 0.09), (20, 100, 20, 0.03), (10, 500, 20, 0.005)]
)
def test_spread_examples_are_nearer_than_the_stated_error(nodes: int, rows: int, least: int, near: float) -> None:
    """Clients with the same distribution, and a policy that leaves few bins: the mean of ten draws."""
    distances = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        clients = []
        for _ in range(nodes):
            positive = rng.random(rows) < 0.5
            clients.append((rng.standard_normal(rows) + 2.0 * positive, positive))
        value, error = auroc(said(clients, 256, least), sizes(clients))
        scores, positive, _ = joined(clients, sizes(clients))
        ranks = np.argsort(np.argsort(scores)) + 1
        n, p = (~positive).sum(), positive.sum()
        want = (ranks[positive].sum() - p * (p + 1) / 2) / (n * p)
        distances.append(want - value)
        assert abs(want - value) <= error
    assert abs(np.mean(distances)) < near


def test_many_clients_of_very_different_sizes() -> None:
    counts = [int(10 ** (3.5 * k / 60)) for k in range(60)]
    clients = made("near zero", counts, seed=5)
    scores, positive, _ = joined(clients, sizes(clients))
    order = np.unique(scores, return_inverse=True)[1]
    negative = np.bincount(order[~positive], minlength=order.max() + 1)
    below = np.cumsum(negative) - negative / 2
    want = below[order[positive]].sum() / positive.sum() / (~positive).sum()
    value, error = auroc(said(clients), sizes(clients))
    assert abs(value - want) <= error < 0.01
    assert abs(value - want) < 1e-4


def test_means_over_classes_leave_out_those_of_one_kind() -> None:
    scores = np.linspace(0.0, 1.0, 10)
    kinds = [scores > 0.5, scores < 0.5, np.zeros(10, bool), np.ones(10, bool)]
    numbers = packed([bins_of(scores, kind, 256) for kind in kinds])
    assert auroc([numbers], [10.0]) == (0.5, 0.0)
    one_kind = packed([bins_of(scores, kind, 256) for kind in kinds[2:]])
    assert all(math.isnan(value) for value in (*auroc([one_kind], [10.0]), *average_precision([one_kind], [1.0])))


def test_clients_with_one_class_each_make_a_figure_together() -> None:
    ill, well = (np.array([2.0, 3.0, 5.0]), np.ones(3, bool)), (np.array([-1.0, 0.0, 1.0, 1.5]), np.zeros(4, bool))
    assert auroc(said([ill, well]), [3.0, 4.0]) == (1.0, 0.0)
    assert average_precision(said([well, ill]), [4.0, 3.0]) == (1.0, 0.0)


def test_different_numbers_of_classes_are_an_error() -> None:
    scores = np.linspace(0.0, 1.0, 10)
    one = bins_of(scores, scores > 0.5, 256)
    with pytest.raises(ValueError, match="argument"):
        auroc([packed([one]), packed([one, one])], [1.0, 1.0])
