"""Which clients are left out because they did not reply, and when they take part again."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from server_app.exchange.silent_clients import Attendance


def out_of(attendance: Attendance, server_round: int, clients: Iterable[int] = (0, 1, 2)) -> list[int]:
    return sorted(attendance.out(server_round, list(clients)))


def test_a_client_is_left_out_after_mute_rounds_in_a_row() -> None:
    attendance = Attendance(3)
    assert attendance.close(1, mute=[2], used=[0, 1]) == []
    assert attendance.close(2, mute=[2], used=[0, 1]) == []
    assert attendance.close(3, mute=[2], used=[0, 1]) == [2]
    assert attendance.out(4, [0, 1, 2]) == {
        2: "left out after no reply in 3 rounds in a row; asked again when it replies to the roll call"
    }
    assert out_of(attendance, 100) == [2]
    assert out_of(attendance, 4, [0, 1]) == []  # client 2 is not connected


def test_a_used_reply_in_between_starts_the_count_again_and_a_rejected_one_does_not() -> None:
    attendance = Attendance(2)
    attendance.close(1, mute=[1, 2], used=[0])
    attendance.close(2, mute=[], used=[0, 1])
    assert attendance.close(3, mute=[1, 2], used=[0]) == [2]


def test_a_client_without_a_reply_in_the_evaluation_counts_as_mute() -> None:
    assert Attendance(1).close(1, mute=[1], used=[0, 1]) == [1]


def test_a_client_that_shows_itself_takes_part_and_is_left_out_at_once_if_it_is_mute_again() -> None:
    attendance = Attendance(2)
    for server_round in (1, 2):
        attendance.close(server_round, mute=[2], used=[0])
    attendance.shows(2)
    assert out_of(attendance, 3) == []
    assert attendance.close(3, mute=[2], used=[0]) == [2]
    attendance.shows(2)
    assert attendance.out(4, [0, 2]) == {2: "left out after no reply in 3 rounds in a row; asked again in round 5"}
    assert out_of(attendance, 5) == []


def test_the_probation_ends_after_as_many_used_replies() -> None:
    attendance = Attendance(2)
    for server_round in (1, 2):
        attendance.close(server_round, mute=[2], used=[0])
    attendance.shows(2)
    for server_round in (3, 4):
        attendance.close(server_round, mute=[], used=[0, 2])
    assert attendance.close(5, mute=[2], used=[0]) == []


def test_if_all_are_left_out_those_that_showed_themselves_take_part() -> None:
    attendance = Attendance(1)
    for server_round in (1, 2):
        attendance.close(server_round, mute=[0, 1], used=[])
        attendance.shows(0)
    assert out_of(attendance, 3, [0, 1]) == [1]
    attendance.shows(1)
    assert out_of(attendance, 3, [0, 1]) == []
    assert out_of(attendance, 3, [0, 1, 2]) == [0, 1]


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(10, 300))
def test_a_client_that_replies_to_roll_calls_only_costs_few_rounds(limit: int, rounds: int) -> None:
    """It costs `limit` rounds, then rounds at doubling distances: limit + log2(rounds) at most."""
    attendance = Attendance(limit)
    cost = 0
    for server_round in range(1, rounds + 1):
        asked = not out_of(attendance, server_round)
        cost += asked
        attendance.close(server_round, mute=[2] if asked else [], used=[0, 1])
        attendance.shows(2)
    assert cost <= limit + rounds.bit_length()


@settings(deadline=None)
@given(st.integers(1, 4), st.lists(st.sampled_from(["mute", "used", "rejected"]), min_size=1, max_size=60))
def test_an_honest_client_is_left_out_only_after_mute_rounds_in_a_row(limit: int, replies: list[str]) -> None:
    """The first time that a client is left out, its last `limit` replies that counted are all mute."""
    attendance = Attendance(limit)
    counted: list[str] = []
    for server_round, reply in enumerate(replies, start=1):
        counted += [reply] if reply != "rejected" else []
        mute, used = ([0] if reply == kind else [] for kind in ("mute", "used"))
        if attendance.close(server_round, mute=mute, used=used):
            assert counted[-limit:] == ["mute"] * limit
            return
        assert counted[-limit:] != ["mute"] * limit
