"""How long runs take, and which fit a budget."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedstride.errors import ConfigError
from lab.reproduction.run_times import Pace, Planned, pace, seconds_in, within, written
from server_app.config.compose import compose

TIMES = st.lists(st.floats(0, 1e5), max_size=30)


@given(TIMES, st.floats(0, 1e6))
def test_within_a_budget(seconds: list[float], budget: float) -> None:
    planned = [Planned(number, each) for number, each in enumerate(seconds)]
    chosen, left = within(planned, budget)
    assert sum(each.seconds for each in chosen) <= budget * (1 + 1e-12)
    assert sorted([*chosen, *left]) == planned
    assert [each.what for each in chosen] == sorted(each.what for each in chosen)
    for each in left:  # it did not fit beside those that come before it
        assert sum(one.seconds for one in chosen if one.what < each.what) + each.seconds > budget
    assert within(planned, None) == (planned, [])


def test_the_time_of_the_rounds_that_are_left() -> None:
    config = replace(compose([]), rounds=100, evaluate_every=10)
    assert Pace(2.0, 5.0).of(config) == 250.0
    assert Pace(2.0, 5.0).of(config, done=95) == 15.0
    assert Pace(2.0, 5.0).of(replace(config, rounds=101), done=100) == 7.0  # the last round is always evaluated
    assert Pace(2.0, 5.0).of(config, done=100) == 0.0
    assert Pace(2.0, 5.0).of(replace(config, evaluate_every=0)) == 205.0  # only the last round is evaluated


def test_an_evaluation_without_a_time_counts_for_none() -> None:
    rows = [{"round": 1, "seconds/train": 2.0, "seconds/evaluate": None}, {"round": 2, "seconds/train": 4.0}]
    assert pace(rows) == Pace(3.0, 0.0)


def test_the_pace_of_what_is_done() -> None:
    rows = [
        {"round": 0, "seconds/evaluate": 3.0},
        {"round": 1, "seconds/train": 4.0, "seconds/aggregate": 1.0},
        {"round": 2, "seconds/train": 6.0, "seconds/aggregate": 1.0, "seconds/evaluate": 5.0},
    ]
    assert pace(rows) == Pace(6.0, 4.0)
    assert pace(rows[:1]) is None
    assert pace([]) is None


def test_times_as_text() -> None:
    assert [seconds_in(text) for text in ("8h", "90min", "1.5 h", "30s", "2d")] == [28800, 5400, 5400, 30, 172800]
    assert [written(seconds) for seconds in (0.4, 59.6, 3723, 360000)] == [
        "0:00:00",
        "0:01:00",
        "1:02:03",
        "100:00:00",
    ]
    for text in ("8", "h", "8 hours", "-1h", "0h", "1e3h", "8h30", "٨h"):
        with pytest.raises(ConfigError, match="--budget"):
            seconds_in(text)
