"""Moments of classes: exactly those of the pooled examples, invalid reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstride.errors import ReplyError
from fedstride.tasks.statistics.class_moments import ClassMoments, of_examples, pooled, template, unpacked


def alone(*rows: tuple[float, ...]) -> ClassMoments:
    return of_examples(np.array(rows), np.zeros(len(rows), int))


def test_worked_example() -> None:
    found = pooled([alone((1, 0), (2, 1), (3, 5)), alone((0, 2), (4, 2))])
    assert found.counts.tolist() == [5] and found.means.tolist() == [[2.0, 2.0]]
    assert found.covariances[0] == pytest.approx(np.array([[2.5, 1.25], [1.25, 3.5]]), abs=1e-12)


CLIENTS = st.lists(
    st.lists(st.tuples(st.integers(0, 3), st.floats(-50, 50), st.floats(-50, 50)), min_size=1, max_size=9),
    min_size=1,
    max_size=5,
)


@pytest.mark.slow
@given(CLIENTS, st.sampled_from([0.0, 1e6]))
@settings(max_examples=60)
def test_mean_and_unbiased_covariance_of_all_examples(clients: Any, shift: float) -> None:
    data = [(np.array([row[1:] for row in rows]) + shift, np.array([row[0] for row in rows])) for rows in clients]
    found = pooled([of_examples(*each) for each in data])
    features, labels = (np.concatenate(column) for column in zip(*data, strict=True))
    assert found.classes.tolist() == sorted(set(labels.tolist()))
    for i, c in enumerate(found.classes):
        rows = features[labels == c]
        assert found.counts[i] == len(rows)
        assert found.means[i] == pytest.approx(rows.mean(axis=0), rel=1e-12, abs=1e-9)
        expected = np.cov(rows.T) if len(rows) > 1 else np.zeros((2, 2))
        assert found.covariances[i] == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(CLIENTS, st.randoms())
@settings(max_examples=30)
def test_the_order_of_clients_does_not_matter(clients: Any, random: Any) -> None:
    parts = [of_examples(np.array([r[1:] for r in rows]), np.array([r[0] for r in rows])) for rows in clients]
    shuffled = random.sample(parts, len(parts))
    one, other = pooled(parts), pooled(shuffled)
    assert one.means == pytest.approx(other.means, abs=1e-9)
    assert one.covariances == pytest.approx(other.covariances, abs=1e-9)


def drawn(seed: int = 0) -> ClassMoments:
    rng = np.random.default_rng(seed)
    return of_examples(rng.standard_normal((20, 3)), rng.integers(0, 2, 20) * 3)


def test_there_and_back_in_float32() -> None:
    before, after = drawn(), unpacked(drawn().packed(), classes=5, size=3, most=20)
    assert after.classes.tolist() == [0, 3] and after.counts.tolist() == before.counts.tolist()
    assert after.means == pytest.approx(before.means, rel=1e-6, abs=1e-7)
    assert after.covariances == pytest.approx(before.covariances, rel=1e-6, abs=1e-7)
    assert (after.covariances == after.covariances.transpose(0, 2, 1)).all()


def test_bytes_of_a_class() -> None:
    """4 (d + d (d + 1) / 2) bytes and two whole numbers."""
    one = alone((1.0, 2.0, 3.0)).packed()
    assert one["means"].nbytes + one["covariances"].nbytes == 4 * (3 + 6)
    assert {name: array.shape[1:] for name, array in one.items()} == {
        name: array.shape[1:] for name, array in template(10, 3).items()
    }


@pytest.mark.parametrize(
    "change",
    [
        {"classes": np.array([3, 0])},
        {"classes": np.array([0, 0])},
        {"classes": np.array([0, 5])},
        {"classes": np.array([-1, 3])},
        {"classes": np.zeros(0, np.int64)},
        {"classes": np.array(3)},
        {"classes": np.array([0.0, 3.0])},
        {"counts": np.array([0, 4])},
        {"counts": np.array([2**62, 2**62])},
        {"counts": np.array([10, 11])},
        {"counts": np.array([10])},
        {"means": np.zeros((2, 4), np.float32)},
        {"means": np.zeros((2, 3))},
        {"means": np.full((2, 3), np.nan, np.float32)},
        {"covariances": np.full((2, 6), np.inf, np.float32)},
        {"covariances": np.zeros((2, 9), np.float32)},
        {"more": np.zeros(1)},
    ],
)
def test_invalid_reports(change: dict[str, np.ndarray]) -> None:
    with pytest.raises(ReplyError):
        unpacked({**drawn().packed(), **change}, classes=5, size=3, most=20)
    missing = {name: array for name, array in drawn().packed().items() if name not in change}
    if len(missing) < 4:
        with pytest.raises(ReplyError):
            unpacked(missing, classes=5, size=3, most=20)
