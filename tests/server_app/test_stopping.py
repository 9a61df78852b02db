"""When a run may end, by hand."""

from __future__ import annotations

import math

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
    assert best_round(ROWS, "test/nothing") is None


def test_target() -> None:
    assert reason_to_stop(ROWS, "test/accuracy", target=0.7, patience=None)
    assert reason_to_stop(ROWS, "test/accuracy", target=0.71, patience=None) is None
    assert reason_to_stop(ROWS, "test/loss", target=1.0, patience=None)
    assert reason_to_stop(ROWS, "test/loss", target=0.9, patience=None) is None


def test_patience_counts_evaluations() -> None:
    assert reason_to_stop(ROWS, "test/loss", target=None, patience=2)
    assert reason_to_stop(ROWS, "test/loss", target=None, patience=3) is None
    assert reason_to_stop(ROWS[:4], "test/loss", target=None, patience=1) is None
