"""How long an exchange waits: the formula on numbers, its limits, and what each exchange learns."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server_app.exchange.timeouts import CEILING, FIRST, FLOOR, MULTIPLE, CallWait, Times, Waits, allowed, learnt

SECONDS = st.floats(0.0, 10_000.0)
TIMES = st.lists(SECONDS, min_size=1, max_size=9)


@pytest.mark.parametrize(
    ("past", "now", "expected"),
    [
        ([], [], 3600.0),
        ([1.0, 2.0, 3.0], [], 60.0),
        ([7.0, 8.0, 9.0, 50.0], [], 85.0),
        ([8.0], [20.0, 10.0, 90.0], 200.0),  # the slower of the two medians
        ([20.0], [8.0], 200.0),
        ([], [400.0], 3600.0),
    ],
)
def test_the_wait_is_ten_times_the_median_within_limits(past: list, now: list, expected: float) -> None:
    assert learnt(past, now) == pytest.approx(expected, rel=1e-12)


@settings(deadline=None)
@given(TIMES, TIMES)
def test_the_wait_has_its_formula(past: list[float], now: list[float]) -> None:
    expected = np.clip(10 * max(np.median(past), np.median(now)), 60, 3600)
    assert learnt(past, now) == pytest.approx(float(expected), rel=1e-12)


@settings(deadline=None)
@given(st.lists(SECONDS, min_size=3, max_size=15), SECONDS, st.integers(0, 14))
def test_one_client_among_three_cannot_move_the_wait_beyond_the_times_of_the_others(
    times: list[float], hostile: float, position: int
) -> None:
    """With three clients or more, the wait stays between those of the others' extremes, whatever one claims."""
    others = [t for i, t in enumerate(times) if i != position % len(times)]
    wait = learnt((), [*others, hostile])
    assert learnt((), [min(others)]) / 2 <= wait <= learnt((), [max(others)])


@settings(deadline=None)
@given(SECONDS, st.none() | SECONDS)
def test_what_one_client_may_take(middle: float, slowest: float | None) -> None:
    wait = learnt((), [middle])
    seconds = allowed(wait, slowest)
    assert wait <= seconds <= CEILING
    assert seconds <= max(2 * wait, FIRST)
    if slowest is None:
        assert seconds >= min(FIRST, CEILING)
    else:
        assert seconds >= min(2 * slowest, max(FIRST, 2 * wait), CEILING)


def test_a_client_cannot_own_the_clock_by_replying_later_each_round() -> None:
    taken = 59.0
    for _ in range(20):
        taken = 0.99 * allowed(FLOOR, taken)
    assert taken < FIRST


def two_of_three(waits: Waits, seconds: float):
    """An exchange with the clients 0 to 2 on the nodes 10 to 12, of which client 2 has not replied yet."""
    wait = waits.wait("train", {10: 0, 11: 1, 12: 2})
    for node in (10, 11):
        wait.replied(node, seconds, failed=False)
    return wait


def test_the_first_round_waits_for_half_of_the_clients_and_then_for_a_first_reply() -> None:
    wait = Waits(None).wait("train", {10: 0, 11: 1, 12: 2})
    assert wait.seconds([10, 11, 12]) == CEILING
    wait.replied(10, 2.0, failed=False)
    assert wait.seconds([11, 12]) == CEILING
    assert wait.reason(2) == "no reply in 3600 s, the longest wait, since fewer than half of the clients replied"
    wait.replied(11, 4.0, failed=False)
    assert wait.seconds([12]) == FIRST
    assert wait.mute == {2}
    assert wait.reason(2) == (
        "no reply in 300 s, the wait for a client whose replies were slow, or not used so far; "
        "set timeout=SECONDS to wait longer"
    )


@pytest.mark.parametrize(
    ("seconds", "wait", "reason"),
    [
        (2.0, 60.0, "no reply in 60 s, more than 10 times the median of 2 s that replies took; "),
        (40.0, 400.0, "no reply in 400 s, 10 times the median of 40 s that replies took; "),
        (500.0, 3600.0, "no reply in 3600 s, less than 10 times the median of 500 s that replies took; "),
    ],
)
def test_a_client_that_was_used_before_gets_the_learnt_wait(seconds: float, wait: float, reason: str) -> None:
    waits = Waits(None)
    first = two_of_three(waits, seconds)
    first.replied(12, seconds, failed=False)
    first.finished({0, 1, 2})
    second = two_of_three(waits, seconds)
    assert second.seconds([12]) == wait
    assert second.reason(2) == reason + "set timeout=SECONDS to wait longer"


def test_a_client_that_was_slow_before_gets_twice_its_own_time() -> None:
    waits = Waits(None)
    first = two_of_three(waits, 2.0)
    first.replied(12, 100.0, failed=False)
    first.finished({0, 1, 2})
    assert two_of_three(waits, 2.0).seconds([12]) == 200.0


def test_only_used_replies_are_learnt_from_and_only_those_of_the_last_rounds() -> None:
    times = Times()
    times.add({0: 1.0, 1: 5.0})
    times.add({})
    for taken in (2.0, 3.0, 4.0):
        times.add({0: taken})
    assert times.past == [2.0, 3.0, 4.0]
    assert times.slowest == {0: 4.0, 1: 5.0}
    waits = Waits(None)
    first = two_of_three(waits, 30.0)
    first.replied(12, 299.0, failed=False)
    first.finished({0, 1})  # the reply of client 2 was rejected
    assert two_of_three(waits, 30.0).seconds([12]) == 300.0
    assert waits.wait("evaluate", {10: 0}).seconds([10]) == CEILING  # another kind of request


def test_errors_count_neither_as_replies_nor_as_missing() -> None:
    wait = Waits(None).wait("train", {10: 0, 11: 1, 12: 2, 13: 3})
    wait.replied(10, 0.1, failed=True)
    wait.replied(11, 0.1, failed=True)
    assert wait.seconds([12, 13]) == CEILING
    wait.replied(12, 50.0, failed=False)
    assert wait.seconds([13]) == 500.0


def test_a_fixed_wait_stays_fixed_and_an_unsent_message_has_its_own_reason() -> None:
    waits = Waits(7.5)
    wait = two_of_three(waits, 1.0)
    assert wait.seconds([12]) == 7.5
    assert wait.reason(2) == "no reply in 7.5 s, the value of timeout"
    wait.replied(12, 2.0, failed=False)
    assert wait.mute == set()
    assert wait.reason(2) == "the SuperLink did not accept the message to this node"


def test_the_wait_for_the_roll_call() -> None:
    past: deque[float] = deque()
    wait = CallWait(past, 600.0)
    assert wait.seconds([10, 11]) == 600.0
    wait.replied(12, 1.0, failed=True)
    wait.replied(10, 9.0, failed=False)
    assert wait.seconds([11]) == 90.0
    assert CallWait(past, 120.0).seconds([13]) == MULTIPLE * 9.0
