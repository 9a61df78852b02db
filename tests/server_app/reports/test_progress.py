"""How the clients of a round stand, for whoever watches: the file in the run's folder, and the events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from desk import StopAfter, play
from hypothesis import given
from hypothesis import strategies as st

from lab.results.run_folders import load
from server_app.reports.progress import (
    ANSWERED,
    BATCHES,
    FILE,
    LONGEST_REASON,
    LOST,
    MOST_REASONS,
    REJECTED,
    STATES,
    TRAINING,
    WAITING,
    Progress,
    after,
    asked,
    begins,
    closed,
)


def row(client: int | str | None, status: str) -> dict[str, Any]:
    return {"round": 1, "client": client, "status": status}


def test_a_round_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    events: list[Any] = []
    progress = Progress(tmp_path, events.append)
    progress.begins(["a", "b", "c", 3], 10, "test/accuracy", 0)
    assert on_disk(tmp_path) == (0, {"a": WAITING, "b": WAITING, "c": WAITING, "3": WAITING})
    progress.asked(1, ["a", "b", 3])
    progress.answered(["b"])
    assert on_disk(tmp_path) == (1, {"a": TRAINING, "b": ANSWERED, "c": WAITING, "3": TRAINING})
    progress.answered([3])
    texts = {"a": "Traceback\n  a line\nValueError: no", 3: "n" * 300}
    rows = [row("a", "no reply"), row("b", "used"), row(3, "rejected"), row("c", "left out"), row(None, "refused")]
    rows = [{**each, "reason": texts.get(each["client"])} for each in rows]
    progress.closed(rows, 0.5)
    assert on_disk(tmp_path) == (1, {"a": LOST, "b": ANSWERED, "c": LOST, "3": REJECTED})
    assert events[-1] == {
        "event": "closed", "round": 1, "states": {"a": LOST, "3": REJECTED, "c": LOST},
        "reasons": {"a": "ValueError: no", "3": "n" * LONGEST_REASON}, "value": 0.5,
    }  # fmt: skip
    progress.asked(2, ["a", "d"])  # a new one
    assert on_disk(tmp_path) == (2, {"a": TRAINING, "b": WAITING, "c": WAITING, "3": WAITING, "d": TRAINING})
    progress.end()
    assert not (tmp_path / FILE).exists()


def on_disk(folder: Path) -> tuple[int, dict[str, str]]:
    found = json.loads((folder / FILE).read_text())
    return found["round"], found["clients"]


@given(st.integers(1, 400))
def test_replies_are_told_in_few_parts(tmp_path_factory: pytest.TempPathFactory, clients: int) -> None:
    """And who follows the events knows at the end what the run knows."""
    events: list[Any] = []
    progress = Progress(Path("/dev/null/no folder"), events.append)  # a disk that cannot be written does no harm
    names = [f"n{k}" for k in range(clients)]
    progress.begins(names, 1, "m", 0)
    progress.asked(1, names)
    for name in names:
        progress.answered([name])
    told = [event for event in events if event["event"] == "answered"]
    assert len(told) <= BATCHES
    progress.closed([row(name, "used") for name in names], None)
    states: dict[str, str] = {}
    for event in events:
        states = after(states, json.loads(json.dumps(event)))
    assert states == dict.fromkeys(names, ANSWERED)


STEPS = st.lists(
    st.tuples(st.sampled_from(["asked", "answered", "closed"]), st.lists(st.sampled_from(["a", 7, 'é"\\', "d"]))),
    max_size=8,
)


@pytest.mark.slow
@given(STEPS)
def test_the_file_says_what_all_events_together_say(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, list[int | str]]]
) -> None:
    """Only what an event changes is encoded again, and the file has the same bytes as if all were."""
    folder, events = tmp_path_factory.mktemp("run"), list[Any]()
    progress = Progress(folder, events.append)
    progress.begins(["a", 7, 'é"\\'], 9, "m", 0)
    for number, (kind, clients) in enumerate(steps, start=1):
        if kind == "asked":
            progress.asked(number, clients)
        elif kind == "answered":
            for client in clients:
                progress.answered([client])
        else:
            progress.closed([row(client, "rejected") for client in clients], None)
        states: dict[str, str] = {}
        for event in events:
            states = after(states, event)
        told = [event["round"] for event in events if event["event"] == "asked"]
        assert (folder / FILE).read_text() == json.dumps({"round": told[-1] if told else 0, "clients": states})


def test_with_many_clients_the_file_is_written_less_often(tmp_path: Path) -> None:
    progress = Progress(tmp_path, None)
    progress.begins(range(1000), 10, "test/accuracy", 0)
    progress.asked(1, range(20))
    for client in range(9):
        progress.answered([client])
    assert set(on_disk(tmp_path)[1].values()) == {WAITING, TRAINING}
    progress.answered([9])
    assert list(on_disk(tmp_path)[1].values()).count(ANSWERED) == 10


def test_every_status_of_a_row_has_a_state(tmp_path: Path) -> None:
    """Those that the documentation of clients.jsonl lists, and an unknown event changes nothing."""
    assert set(STATES) == {"used", "rejected", "refused", "no reply", "left", "left out"}
    assert closed(1, [row("a", "joined"), row("a", "used")], None)["states"] == {}
    assert after({"a": TRAINING}, {"event": "something else"}) == {"a": TRAINING}
    assert begins(["a"], 3, "m", 2)["round"] == 2 and asked(3, [1])["clients"] == [1]
    assert closed(1, [row("a", "used")], None)["states"] == {}
    many = closed(1, [row(k, "rejected") | {"reason": "no"} for k in range(100)], None)
    assert (len(many["states"]), len(many["reasons"])) == (100, MOST_REASONS)


def test_a_run_keeps_the_file_while_it_lasts(tmp_path: Path) -> None:
    seen: list[tuple[int, dict[str, str]]] = []

    class Looks(StopAfter):
        def replied(self, server_round: int, done: int, total: int) -> None:
            seen.append(on_disk(tmp_path / "mine"))

    play(tmp_path, "rounds=2", "cohort=2", "name=mine", observers=[Looks(9)])
    assert [number for number, _ in seen] == [1, 1, 2, 2]
    assert [sorted(states.values()) for _, states in seen[:2]] == [
        [ANSWERED, TRAINING, WAITING, WAITING],
        [ANSWERED, ANSWERED, WAITING, WAITING],
    ]
    asked_in_1 = {str(each["client"]) for each in load(tmp_path / "mine").clients.rows if each["round"] == 1}
    assert {label for label, state in seen[1][1].items() if state == ANSWERED} == asked_in_1
    assert not (tmp_path / "mine" / FILE).exists()
