"""What a client can have for an evaluation follows from the roll call alone."""

from __future__ import annotations

from typing import Any

import pytest
from scipy.stats import nbinom

from server_app.exchange.corrected_replies import most_measured


def most(count: int, holdout: float) -> float:
    return most_measured({7: {"num-examples": count}}, holdout)[7]


@pytest.mark.parametrize(
    ("facts", "holdout", "expected"),
    [
        ({"num-examples": 80}, 0.0, 80),
        ({"num-examples": 80}, 0.2, 100),
        ({"num-examples": 8000}, 0.2, 10_000),
        ({"num-examples": 8000}, 0.5, 16_000),
        ({}, 0.0, 1),
        ({}, 0.9, 1),
    ],
)
def test_the_most_is_what_a_client_has_altogether(facts: dict[str, Any], holdout: float, expected: int) -> None:
    assert most_measured({7: facts}, holdout)[7] == pytest.approx(expected, abs=1 if holdout else 0)
    assert most_measured({7: facts}, holdout)[7] >= expected


@pytest.mark.parametrize("holdout", [0.01, 0.1, 0.2, 0.5, 0.8, 0.95])
def test_chance_does_not_exceed_the_most(holdout: float) -> None:
    """With n examples for training, the others follow a negative binomial distribution."""
    for count in (*range(1, 60), 100, 1000, 100_000):
        assert nbinom.sf(most(count, holdout), count, 1.0 - holdout) < 1e-5, count


def test_what_a_lie_can_gain_is_bounded() -> None:
    """Less than ten times of what a client holds out on average, from 20 examples for training on."""
    for holdout in (0.1, 0.2, 0.5, 0.8):
        for count in (20, 50, 100, 1000):
            assert most(count, holdout) < 10.0 * max(count * holdout / (1.0 - holdout), count / 5)
