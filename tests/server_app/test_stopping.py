"""Early stopping and the best round, with rows written by hand, and row by row as from all rows at once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstride.errors import ConfigError
from server_app.stopping import Decision, chosen_round, quorum_of

Row = dict[str, Any]

ROWS: list[Row] = [
    {"round": 0, "test/accuracy": 0.99, "test/loss": 0.0},  # the initial model never counts
    {"round": 1, "test/accuracy": 0.5, "test/loss": 2.0},
    {"round": 2},  # not evaluated
    {"round": 3, "test/accuracy": 0.7, "test/loss": 1.0},
    {"round": 4, "test/accuracy": 0.7, "test/loss": 1.5},
    {"round": 5, "test/accuracy": math.nan, "test/loss": 1.2},
]


def reason_to_stop(rows: Sequence[Row], metric: str, *, target: float | None, patience: int | None) -> str | None:
    return Decision(metric).after(*rows).reason_to_stop(target=target, patience=patience)


def test_accuracy_is_maximised_and_loss_minimised_the_first_of_equals() -> None:
    assert chosen_round(ROWS, "test/accuracy") == (3, 0.7)
    assert chosen_round(ROWS, "test/loss") == (3, 1.0)
    assert chosen_round([], "test/accuracy") is None


def test_the_fastest_round_is_the_best_of_times() -> None:
    rows = [{"round": number, "seconds/aggregate": value} for number, value in ((1, 0.3), (2, 0.1), (3, 0.2))]
    assert chosen_round(rows, "seconds/aggregate") == (2, 0.1)
    assert reason_to_stop(rows, "seconds/aggregate", target=0.1, patience=None)
    assert reason_to_stop(rows, "seconds/aggregate", target=0.09, patience=None) is None


def test_a_metric_without_a_direction_has_no_chosen_round() -> None:
    with pytest.raises(ConfigError, match=r"norms/N has no best value"):
        chosen_round([{"round": 1, "norms/N": 1.0}], "norms/N")


def test_target() -> None:
    assert reason_to_stop(ROWS, "test/accuracy", target=0.7, patience=None)
    assert reason_to_stop(ROWS, "test/accuracy", target=0.71, patience=None) is None
    assert reason_to_stop(ROWS, "test/loss", target=1.0, patience=None)
    assert reason_to_stop(ROWS, "test/loss", target=0.9, patience=None) is None


def test_patience_counts_evaluations() -> None:
    assert reason_to_stop(ROWS, "test/loss", target=None, patience=2)
    assert reason_to_stop(ROWS, "test/loss", target=None, patience=3) is None
    assert reason_to_stop(ROWS[:4], "test/loss", target=None, patience=1) is None


# ---------------------------------------------------------------- a metric of clients


# As in metrics.jsonl: the mean, and the median that decides; null if too few clients reported it.
LOSSES: list[Row] = [
    {"round": 0},
    {"round": 1, "train/loss": 2.0, "median/train/loss": 2.1},
    {"round": 2, "train/loss": -1e308, "median/train/loss": 1.9},
    {"round": 3, "train/loss": 0.05, "median/train/loss": None},
    {"round": 4, "train/loss": 0.04, "median/train/loss": math.nan},
    {"round": 5, "train/loss": 9.0, "median/train/loss": 1.95},
]


def test_the_median_of_clients_decides() -> None:
    assert chosen_round(LOSSES, "train/loss") == (2, 1.9)
    means = [{key: value for key, value in row.items() if key != "median/train/loss"} for row in LOSSES]
    assert chosen_round(means, "train/loss") == (2, -1e308)
    assert reason_to_stop(LOSSES, "train/loss", target=0.1, patience=None) is None
    assert reason_to_stop(LOSSES, "train/loss", target=1.9, patience=None)


def test_rounds_without_a_quorum_do_not_count_for_patience() -> None:
    assert reason_to_stop(LOSSES, "train/loss", target=None, patience=1)
    assert reason_to_stop(LOSSES, "train/loss", target=None, patience=2) is None
    assert reason_to_stop(LOSSES[:5], "train/loss", target=None, patience=1) is None


def test_a_resumed_run_decides_the_same() -> None:
    """NaN and infinity are null in the file that a resumed run reads."""
    read = [{key: None if value != value else value for key, value in row.items()} for row in LOSSES]
    for count in range(len(LOSSES)):
        assert chosen_round(LOSSES[:count], "train/loss") == chosen_round(read[:count], "train/loss")
        for patience in (1, 2):
            assert reason_to_stop(LOSSES[:count], "train/loss", target=None, patience=patience) == reason_to_stop(
                read[:count], "train/loss", target=None, patience=patience
            )


VALUES = st.none() | st.sampled_from([0.0, 0.5, 1.0, math.nan, math.inf, -math.inf]) | st.floats(width=32)
FIGURES = st.fixed_dictionaries({}, optional={"train/loss": VALUES, "median/train/loss": VALUES})


@given(figures=st.lists(FIGURES, max_size=12), parts=st.lists(st.integers(0, 12), max_size=3))
def test_row_by_row_decides_as_all_rows_at_once(figures: list[Row], parts: list[int]) -> None:
    rows = [{"round": number, **row} for number, row in enumerate(figures)]
    decision, cuts = Decision("train/loss"), [0, *sorted(min(cut, len(rows)) for cut in parts), len(rows)]
    for begin, end in itertools.pairwise(cuts):
        decision = decision.after(*rows[begin:end])
    values = _values(rows)
    best = min(values, key=lambda at: values[at] if values[at] is not None else math.inf, default=None)
    if best is None or values[best] is None:
        assert decision.best is None
    else:
        assert decision.best == (best, values[best])
        assert decision.since == sum(number > best for number in values)


def _values(rows: Sequence[Row]) -> dict[int, float | None]:
    """The figure that decides in each evaluation after round 0; of clients it is their median, if there is one."""
    values: dict[int, float | None] = {}
    for row in rows[1:]:
        of_clients = "median/train/loss" in row
        value = row.get("median/train/loss" if of_clients else "train/loss")
        finite = value if value is not None and math.isfinite(value) else None
        if finite is not None or (not of_clients and "train/loss" in row):
            values[row["round"]] = finite
    return values


@pytest.mark.parametrize("value", [math.inf, -math.inf, None, [1.0], "0.1"])
def test_only_finite_numbers_can_be_best(value: object) -> None:
    rows = [{"round": 1, "test/loss": value}, {"round": 2, "test/loss": 3.0}]
    assert chosen_round(rows, "test/loss") == (2, 3.0)


@pytest.mark.parametrize(
    ("best_quorum", "asked", "clients", "want"),
    [
        (None, 10, 10, 6),
        (None, 5, 9, 3),
        (None, 2, 2, 2),
        (None, 1, 5, 2),
        (None, 1, 1, 1),
        (1, 10, 10, 1),
        (8, 3, 9, 8),
    ],
)
def test_the_quorum_is_more_than_half_and_at_least_two(
    best_quorum: int | None, asked: int, clients: int, want: int
) -> None:
    assert quorum_of(best_quorum, asked, clients) == want
