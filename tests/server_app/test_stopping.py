"""Early stopping and the best round, with rows written by hand."""

from __future__ import annotations

import math

import pytest

from fedstride.errors import ConfigError
from server_app.stopping import best_round, reason_to_stop

ROWS = [
    {"round": 0, "test/accuracy": 0.99, "test/loss": 0.0},  # the initial model never counts
    {"round": 1, "test/accuracy": 0.5, "test/loss": 2.0},
    {"round": 2},  # not evaluated
    {"round": 3, "test/accuracy": 0.7, "test/loss": 1.0},
    {"round": 4, "test/accuracy": 0.7, "test/loss": 1.5},
    {"round": 5, "test/accuracy": math.nan, "test/loss": 1.2},
]


def test_accuracy_is_maximised_and_loss_minimised_the_first_of_equals() -> None:
    assert best_round(ROWS, "test/accuracy") == (3, 0.7)
    assert best_round(ROWS, "test/loss") == (3, 1.0)
    assert best_round([], "test/accuracy") is None


def test_the_fastest_round_is_the_best_of_times() -> None:
    rows = [{"round": number, "seconds/aggregate": value} for number, value in ((1, 0.3), (2, 0.1), (3, 0.2))]
    assert best_round(rows, "seconds/aggregate") == (2, 0.1)
    assert reason_to_stop(rows, "seconds/aggregate", target=0.1, patience=None)
    assert reason_to_stop(rows, "seconds/aggregate", target=0.09, patience=None) is None


def test_a_metric_without_a_direction_has_no_best_round() -> None:
    with pytest.raises(ConfigError, match=r"norms/N has no best value"):
        best_round([{"round": 1, "norms/N": 1.0}], "norms/N")


def test_target() -> None:
    assert reason_to_stop(ROWS, "test/accuracy", target=0.7, patience=None)
    assert reason_to_stop(ROWS, "test/accuracy", target=0.71, patience=None) is None
    assert reason_to_stop(ROWS, "test/loss", target=1.0, patience=None)
    assert reason_to_stop(ROWS, "test/loss", target=0.9, patience=None) is None


def test_patience_counts_evaluations() -> None:
    assert reason_to_stop(ROWS, "test/loss", target=None, patience=2)
    assert reason_to_stop(ROWS, "test/loss", target=None, patience=3) is None
    assert reason_to_stop(ROWS[:4], "test/loss", target=None, patience=1) is None
