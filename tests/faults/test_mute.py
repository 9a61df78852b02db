"""Nodes that do not reply: what they cost, when they are left out, and when they take part again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from desk import table, weights
from world import Away, Fault, FaultyGrid, Seen, Silence, error, play

from fedstride.errors import RunError
from server_app.records.line_files import read_lines

pytestmark = pytest.mark.slow

LEARNT = "timeout=null"


def clients_of(seen: Seen) -> list[list[int]]:
    return [[reply.client_id for reply in cohort.replies] for cohort in seen.cohorts]


def rows_of(folder: Path, client: int) -> dict[int, tuple[str, str]]:
    """Status and reason of a client by round."""
    rows = read_lines(folder / "clients.jsonl")
    return {row["round"]: (row["status"], row.get("reason", "")) for row in rows if row["client"] == client}


def seconds_of(seen: Seen) -> list[float]:
    """What each round from round 1 took, on the virtual clock."""
    return [round(after - before, 1) for before, after in zip(seen.seconds, seen.seconds[1:], strict=False)]


def test_a_mute_node_costs_a_minute_and_is_left_out_after_three_rounds(tmp_path: Path, monkeypatch) -> None:
    folder, seen = play(tmp_path, monkeypatch, [Silence(1, first=2)], LEARNT, "rounds=7")
    assert clients_of(seen) == [[0, 1, 2, 3], *[[0, 2, 3]] * 6]
    rows = rows_of(folder, 1)
    assert [rows[t][0] for t in range(1, 8)] == ["used", *["no reply"] * 3, *["left out"] * 3]
    assert rows[2][1] == (
        "no reply in 60 s, more than 10 times the median of 1 s that replies took; "
        "set timeout=SECONDS to wait longer"
    )
    assert rows[5][1] == (
        "left out after no reply in 3 rounds in a row; asked again when it replies to the roll call"
    )
    assert [60.0 <= taken < 61.0 for taken in seconds_of(seen)] == [False, True, True, True, False, False, False]
    assert max(seconds_of(seen)[4:]) < 2.0


def test_a_node_that_is_mute_from_the_first_round_does_not_cost_an_hour(tmp_path: Path, monkeypatch) -> None:
    folder, seen = play(tmp_path, monkeypatch, [Silence(1, first=1, only="train")], LEARNT, "rounds=3")
    assert clients_of(seen) == [[0, 2, 3]] * 3
    assert 300.0 <= seconds_of(seen)[0] < 302.0
    assert rows_of(folder, 1)[1][1].startswith("no reply in 300 s, the wait for a client whose replies were slow")


def test_mute_nodes_are_left_out_with_a_fixed_timeout_too(tmp_path: Path, monkeypatch) -> None:
    folder, seen = play(tmp_path, monkeypatch, [Silence(1, first=1, only="train")], "mute_rounds=1", "rounds=2")
    rows = rows_of(folder, 1)
    assert rows[1] == ("no reply", "no reply in 60 s, the value of timeout")
    assert seconds_of(seen)[0] >= 60.0


@pytest.mark.parametrize("back", [5, 7])
def test_a_left_out_node_takes_part_when_it_shows_itself(tmp_path: Path, monkeypatch, back: int) -> None:
    """It is left out after round 3 and replies to the roll call when it continues; nobody waits for that."""
    silence = Silence(1, first=2, back=back)
    folder, seen = play(tmp_path, monkeypatch, [silence], LEARNT, "rounds=8", "mute_rounds=2")
    rows = rows_of(folder, 1)
    assert [rows[t][0] for t in range(1, 9)] == [
        "used", "no reply", "no reply", *["left out"] * (back - 4), *["used"] * (9 - back),
    ]  # fmt: skip
    assert max(seconds_of(seen)[3:]) < 2.0


def test_a_node_that_replies_to_roll_calls_only_is_left_out_for_longer_each_time(
    tmp_path: Path, monkeypatch
) -> None:
    silence = Silence(1, first=1, only="train")
    folder, seen = play(tmp_path, monkeypatch, [silence], LEARNT, "rounds=14", "mute_rounds=2")
    asked = [t for t, (status, _) in rows_of(folder, 1).items() if status == "no reply"]
    assert asked == [1, 2, 4, 6, 10]
    assert rows_of(folder, 1)[12][1] == "left out after no reply in 5 rounds in a row; asked again in round 18"
    assert sum(taken > 2.0 for taken in seconds_of(seen)) == 5


def test_the_cohort_is_drawn_as_if_a_left_out_client_were_not_connected(tmp_path: Path, monkeypatch) -> None:
    given = (LEARNT, "rounds=6", "cohort=2", "mute_rounds=1")
    folder, seen = play(tmp_path, monkeypatch, [Silence(1, first=1, only="train")], *given)
    left = [t for t, (status, _) in rows_of(folder, 1).items() if status == "left out"]
    assert left
    _, absent = play(tmp_path, monkeypatch, [Away(1, first=t, back=t + 1) for t in left], *given, name="away")
    for t in left:
        assert clients_of(seen)[t - 1] == clients_of(absent)[t - 1]


def test_a_node_that_is_left_out_and_connects_again_is_asked_again(tmp_path: Path, monkeypatch) -> None:
    faults = [Silence(1, first=2, back=5), Away(1, first=4, back=5)]
    _, seen = play(tmp_path, monkeypatch, faults, LEARNT, "rounds=6", "mute_rounds=2")
    assert [1 in clients for clients in clients_of(seen)] == [True, False, False, False, True, True]


def test_an_honest_slow_client_is_waited_for(tmp_path: Path, monkeypatch) -> None:
    """140 times slower than the median: its first reply is waited for, and then its own time counts."""
    slow = [Fault(1, t, delay=140.0) for t in range(1, 6)]
    folder, seen = play(tmp_path, monkeypatch, slow, LEARNT, "rounds=5")
    plain, _ = play(tmp_path, monkeypatch, [], "rounds=5", name="plain")
    assert clients_of(seen) == [[0, 1, 2, 3]] * 5
    assert weights(folder) == weights(plain)
    assert table(folder) == table(plain)


def test_a_round_in_which_all_are_slow_costs_no_reply(tmp_path: Path, monkeypatch) -> None:
    slow = [Fault(client, 3, delay=500.0) for client in range(4)]
    _, seen = play(tmp_path, monkeypatch, slow, LEARNT, "rounds=4")
    assert clients_of(seen) == [[0, 1, 2, 3]] * 4


def test_a_fast_hostile_client_cannot_cut_off_the_others(tmp_path: Path, monkeypatch) -> None:
    hurried = [Fault(0, t, delay=0.0) for t in range(1, 5)]
    slow = [Fault(client, t, delay=800.0) for client in (1, 2, 3) for t in range(1, 5)]
    _, seen = play(tmp_path, monkeypatch, [*hurried, *slow], LEARNT)
    assert clients_of(seen) == [[0, 1, 2, 3]] * 4


def test_rejected_replies_do_not_count_as_mute(tmp_path: Path, monkeypatch) -> None:
    failing = [Fault(1, t, error(2)) for t in range(1, 5)]
    folder, _ = play(tmp_path, monkeypatch, failing, LEARNT, "mute_rounds=1")
    assert [status for status, _ in rows_of(folder, 1).values()] == ["rejected"] * 4


def test_a_node_that_is_mute_in_the_evaluation_only(tmp_path: Path, monkeypatch) -> None:
    silence = Silence(1, first=2, only="evaluate")
    given = (LEARNT, "evaluate_clients=true", "rounds=6", "mute_rounds=2")
    folder, seen = play(tmp_path, monkeypatch, [silence], *given)
    rows = rows_of(folder, 1)
    assert [rows[t][0] for t in range(1, 7)] == ["used", "used", "used", "left out", "used", "left out"]
    assert [60.0 <= taken < 64.0 for taken in seconds_of(seen)[:4]] == [False, True, True, False]
    assert all("local/loss" in row for row in read_lines(folder / "metrics.jsonl")[1:])


def test_a_node_that_is_mute_in_training_is_not_asked_to_evaluate(tmp_path: Path, monkeypatch) -> None:
    given = (LEARNT, "evaluate_clients=true", "rounds=2")
    _, seen = play(tmp_path, monkeypatch, [Silence(1, first=2)], *given)
    assert 60.0 <= seconds_of(seen)[1] < 64.0  # once, not twice


def test_a_round_in_which_nobody_replies_has_no_evaluation(tmp_path: Path, monkeypatch) -> None:
    """Also no figures of the round before it."""
    silences = [Silence(client, first=2, back=3) for client in range(4)]
    folder, _ = play(tmp_path, monkeypatch, silences, "evaluate_clients=true", "rounds=3", "best=local/loss")
    rows = read_lines(folder / "metrics.jsonl")
    assert ["local/loss" in row for row in rows] == [False, True, False, True]
    assert {key for key in rows[2] if "local" in key} == set()


# ---------------------------------------------------------------- the roll call


@pytest.mark.parametrize("replies", [True, False])
def test_a_node_that_is_mute_at_the_start(tmp_path: Path, monkeypatch, replies: bool) -> None:
    """With enough other clients the run starts after a minute; the node takes part when it replies."""
    silence = Silence(1, first=0, back=3 if replies else 99)
    _, seen = play(tmp_path, monkeypatch, [silence], LEARNT, "min_clients=3")
    assert [1 in clients for clients in clients_of(seen)] == [False, False, replies, replies]
    assert 60.0 <= seen.seconds[0] < 62.0
    assert max(seconds_of(seen)[:2]) < 2.0


def test_a_mute_node_that_the_start_needs_is_waited_for(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(RunError, match=r"only 3 of at least 4 clients can take part: site-3 did not"):
        play(tmp_path, monkeypatch, [Silence(1, first=0)], LEARNT)


def test_a_mute_newcomer_is_waited_for_once(tmp_path: Path, monkeypatch) -> None:
    """It connects in each second round, and never replies."""
    away = [Away(3, first=t, back=t + 1) for t in (1, 3, 5)]
    _, seen = play(tmp_path, monkeypatch, [*away, Silence(3, first=0)], LEARNT, "rounds=6", "min_clients=3")
    assert clients_of(seen) == [[0, 1, 2]] * 6
    assert [taken > 59.0 for taken in seconds_of(seen)] == [False, True, False, False, False, False]


def test_a_run_without_a_client_that_can_take_part_waits_for_one(tmp_path: Path, monkeypatch) -> None:
    """All are left out and show themselves some time later, but before `node_wait`."""

    class Later(FaultyGrid):
        def pull_messages(self, message_ids):
            if self.clock.now > 400.0:
                self.silences = []
                self._release(list(self.held))
            return super().pull_messages(message_ids)

    silences: Sequence[Silence] = [Silence(client, first=2) for client in range(4)]
    given = ("timeout=60", "mute_rounds=1", "rounds=3", "node_wait=600")
    _, seen = play(tmp_path, monkeypatch, silences, *given, grid=Later)
    assert [len(clients) for clients in clients_of(seen)] == [4, 0, 4]
