"""What a client can have for an evaluation follows from the roll call alone."""

from __future__ import annotations

from typing import Any

import pytest

from server_app.exchange.corrected_replies import most_measured


@pytest.mark.parametrize(
    ("facts", "holdout", "most"),
    [
        ({"num-examples": 80}, 0.0, 80),
        ({"num-examples": 80}, 0.2, 100),
        ({"num-examples": 20}, 0.8, 100),
        ({"num-examples": 1}, 0.5, 2),
        ({"num-examples": 10}, 0.2, 13),
        ({}, 0.0, 1),
        ({}, 0.9, 1),
    ],
)
def test_the_most_is_what_a_client_has_altogether(facts: dict[str, Any], holdout: float, most: int) -> None:
    assert most_measured({7: facts}, holdout)[7] == pytest.approx(most, abs=1 if holdout else 0)
    assert most_measured({7: facts}, holdout)[7] >= most
