"""Nodes that state a client id which is taken, belongs to another node, or is none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from desk import resume, table, weights
from flwr.app import ConfigRecord, Message, RecordDict
from world import Away, FaultyGrid, Stranger, play, play_on

from fedstride.errors import RunError
from fedstride.flower.grids import ConnectedNode
from fedstride.messages import wire
from fedstride.messages.limits import MAX_TEXT
from server_app.exchange.roll_call_replies import facts_in
from server_app.records.checkpoint import newest_checkpoint
from server_app.records.line_files import read_lines

CLIENTS_4_OF_5 = ("clients=5", "min_clients=4")  # four honest clients with the ids 0 to 3, and room for a fifth


def refused(folder: Path) -> list[tuple[int, int, str]]:
    """Round, node and reason of the nodes that were refused."""
    rows = read_lines(folder / "clients.jsonl")
    return [(row["round"], row["node"], row["reason"]) for row in rows if row["status"] == "refused"]


class FourGrid(FaultyGrid):
    """Four clients in a run with room for five."""

    def __init__(self, clock, clients, faults) -> None:
        super().__init__(clock, 4, faults)
        for context in self._contexts.values():
            context.node_config["num-partitions"] = 5


CLAIMS = {
    "the id of a connected client": (0, "claims client id 0, which belongs to site-2"),
    "True": (True, "claims client id True, which is not allowed"),
    "negative": (-7, "claims client id -7, which is not allowed"),
    "out of range": (99, "it must be a whole number from 0 to 4 (its partition-id), or the node's own id"),
    "the id of a node": (3**30, f"claims client id {3**30}, which is not allowed"),
    "2**62": (2**62, "which is not allowed"),
    "a text": ("0" * 1000, "which is not allowed"),
    "a longer text": ("0" * 10_000, "10000 characters in 'client-id', at most 1000 are allowed"),
    "a list": ([0], "claims client id [0], which is not allowed"),
}


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 3], ids=["at the start", "later"])
@pytest.mark.parametrize("kind", CLAIMS)
def test_a_wrong_claim_costs_the_claimant_only(tmp_path: Path, monkeypatch, kind: str, first: int) -> None:
    claim, said = CLAIMS[kind]
    given = (*CLIENTS_4_OF_5, "rounds=3")
    folder, seen = play(tmp_path, monkeypatch, [Stranger(50, claim, first)], *given, grid=FourGrid)
    plain, _ = play(tmp_path, monkeypatch, [], *given, name="plain", grid=FourGrid)
    assert [len(cohort) for cohort in seen.cohorts] == [4, 4, 4]
    assert weights(folder) == weights(plain)
    assert table(folder) == table(plain)
    ((server_round, node, reason),) = refused(folder)  # once
    assert (server_round, node) == (max(first, 1), 50)
    assert reason.startswith("site-50 ")
    assert said in reason
    assert len(reason) < 300


@pytest.mark.slow
def test_the_id_of_an_absent_client_stays_its_own(tmp_path: Path, monkeypatch) -> None:
    """The stranger claims it while its node is away; the honest node takes part again when it is back."""
    faults = [Away(1, first=2, back=4), Stranger(50, 1, first=2)]
    folder, seen = play(tmp_path, monkeypatch, faults, *CLIENTS_4_OF_5, "rounds=5", grid=FourGrid)
    assert [len(cohort) for cohort in seen.cohorts] == [4, 3, 3, 4, 4]
    assert [reply.node_id for reply in seen.cohorts[-1].replies] == [2, 3, 4, 5]
    assert [(t, node) for t, node, _ in refused(folder)] == [(2, 50)]


@pytest.mark.parametrize(("registered", "winner"), [("0", 50), ("9", 5)])
def test_of_two_nodes_with_one_id_the_one_that_was_registered_first_has_it(
    tmp_path: Path, monkeypatch, registered: str, winner: int
) -> None:
    """Regardless of whose reply arrives first."""
    stranger = Stranger(50, 3, registered=registered)
    folder, _ = play(tmp_path, monkeypatch, [stranger], *CLIENTS_4_OF_5, "rounds=1", grid=FourGrid)
    ((_, loser, reason),) = refused(folder)
    assert {winner, loser} == {5, 50}
    assert f"claims client id 3, which belongs to site-{winner}" in reason


@pytest.mark.slow
def test_too_few_clients_after_a_double_claim_end_the_run_with_both_names(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(RunError) as caught:
        play(tmp_path, monkeypatch, [Stranger(50, 0)], "clients=5", "rounds=1", grid=FourGrid)
    assert str(caught.value) == (
        "only 4 of at least 5 clients can take part: site-50 claims client id 0, which belongs to "
        "site-2; give each node another partition-id in --node-config, from 0 to 4; if a node without "
        "a registered key was restarted, set node_ids=any"
    )


@pytest.mark.slow
def test_a_client_that_comes_back_with_another_key_is_refused(tmp_path: Path, monkeypatch) -> None:
    absence = Away(2, first=2, back=4, new_id=77)
    folder, seen = play(tmp_path, monkeypatch, [absence], "rounds=5")
    assert [len(cohort) for cohort in seen.cohorts] == [4, 3, 3, 3, 3]
    ((server_round, node, reason),) = refused(folder)
    assert (server_round, node) == (4, 77)
    assert "claims client id 2, which belongs to site-4" in reason
    assert reason.endswith("set node_ids=any")


@pytest.mark.slow
def test_a_key_that_was_registered_again_has_the_same_id(tmp_path: Path, monkeypatch) -> None:
    absence = Away(2, first=2, back=4, new_id=77, new_key=False)
    folder, seen = play(tmp_path, monkeypatch, [absence], "rounds=5")
    assert [len(cohort) for cohort in seen.cohorts] == [4, 3, 3, 4, 4]
    assert seen.cohorts[-1].replies[2].node_id == 77
    assert refused(folder) == []


@pytest.mark.slow
def test_ids_belong_to_their_keys_in_a_resumed_run(tmp_path: Path, monkeypatch) -> None:
    folder, _ = play(tmp_path, monkeypatch, [], "rounds=2", "min_clients=3")
    assert newest_checkpoint(folder)[0].owners.keys() == {0, 1, 2, 3}
    other = Away(2, first=1, back=1, new_id=77)
    cohorts = play_on(folder, monkeypatch, [other], "rounds=4", "min_clients=3")
    assert [[reply.client_id for reply in cohort.replies] for cohort in cohorts] == [[0, 1, 3], [0, 1, 3]]
    assert [(t, node) for t, node, _ in refused(folder)] == [(3, 77)]
    cohorts = play_on(folder, monkeypatch, [other], "rounds=5", "node_ids=any")
    assert [reply.node_id for reply in cohorts[-1].replies] == [2, 3, 77, 5]
    cohorts = play_on(folder, monkeypatch, [], "rounds=6", "min_clients=3", "node_ids=fixed")
    assert [reply.node_id for reply in cohorts[-1].replies] == [2, 3, 5]  # now it belongs to node 77


@pytest.mark.slow
def test_a_run_whose_nodes_have_no_keys_can_be_resumed_with_other_node_ids(tmp_path: Path, monkeypatch) -> None:
    """As in a simulation: node ids are drawn at each start."""
    folder, _ = play(tmp_path, monkeypatch, [], "rounds=1")
    rows = resume(folder, "rounds=2").rows  # in this process: no keys
    assert [row["round"] for row in rows] == [0, 1, 2]
    state = json.loads((folder / "checkpoint/round-000002/state.json").read_text())
    assert state["owners"] == {}


def test_a_start_waits_for_an_honest_client_while_a_refused_node_is_connected(tmp_path: Path, monkeypatch) -> None:
    """A stranger must not end a run by being one of the first `min_clients` nodes."""

    class Late(FourGrid):
        def get_node_ids(self):
            late = set() if self.clock.now > 5.0 else {5}
            return [node for node in super().get_node_ids() if node not in late]

    _, seen = play(tmp_path, monkeypatch, [Stranger(50, 0)], *CLIENTS_4_OF_5, "rounds=1", grid=Late)
    assert [reply.client_id for reply in seen.cohorts[0].replies] == [0, 1, 2, 3]


def test_what_a_roll_call_states_is_bounded() -> None:
    asked = Message(RecordDict(), dst_node_id=7, message_type="query")
    stated = {
        wire.CLIENT_ID: 1, wire.NUM_EXAMPLES: 10**13, "device": "x" * 10**6, "torch": 3, "python": "3.11",
        **{f"more{i}": "x" * 1000 for i in range(1000)},
    }  # fmt: skip
    reply = Message(RecordDict({wire.ROLL_CALL: ConfigRecord(stated)}), reply_to=asked)
    assert facts_in(ConnectedNode(7, "7"), reply) == {
        wire.CLIENT_ID: 1,
        "device": "x" * MAX_TEXT,
        "python": "3.11",
    }
