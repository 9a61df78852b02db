"""The roll call and the draw of cohorts with many nodes: what is asked, and what is known without asking again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict

from fedstride.errors import ConfigError, RunError
from fedstride.flower import grids
from fedstride.messages import wire
from lab.engine.local_grid import LocalGrid
from server_app.build import code_of_clients
from server_app.config.compose import compose
from server_app.exchange import roll_call
from server_app.exchange.roster import Roster

CONFIG = ConfigRecord({"a": 1})

CODE = "0123456789abcdef"
"""The digest that clients state, except 1, which states another, and 2, which states none."""


def client(message: Message, context: Context) -> Message:
    """A client that answers the roll call; those with an odd id understand packed models."""
    number = int(context.node_config["partition-id"])
    packed = {wire.PACKED: "yes"} if number % 2 else {}
    code = {} if number == 2 else {wire.CODE: "other" if number == 1 else CODE}
    facts = ConfigRecord({wire.CLIENT_ID: number, wire.NUM_EXAMPLES: 5, **packed, **code})
    return Message(RecordDict({wire.ROLL_CALL: facts}), reply_to=message)


class Changing(LocalGrid):
    """A Grid of which only some nodes are connected, and which keeps the messages that were sent."""

    def __init__(self, clients: int) -> None:
        super().__init__(client, clients)  # type: ignore[arg-type]
        self.here = set(self._contexts)
        self.sent: list[Message] = []

    def get_node_ids(self) -> Iterable[int]:
        return self.here

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        self.sent += (messages := list(messages))
        return super().push_messages(messages)


def called(clients: int, **more: Any) -> tuple[Changing, Roster]:
    grid = Changing(clients)
    overrides = [f"clients={clients}", *(f"{key}={value}" for key, value in more.items())]
    roster = Roster(grid, compose(overrides), CONFIG)
    roster.call()
    return grid, roster


def test_each_node_is_asked_once_and_what_they_are_told_is_one_object() -> None:
    grid, roster = called(300, cohort=10)
    assert sorted(message.metadata.dst_node_id for message in grid.sent) == list(range(2, 302))
    assert len({id(message.content) for message in grid.sent}) == 1
    assert sorted(roster.facts) == list(range(300))
    assert roster.unpacking == {node for node in range(2, 302) if (node - 2) % 2}


def test_a_round_without_a_change_sends_nothing_and_a_node_that_comes_back_is_asked_again() -> None:
    grid, roster = called(20, cohort=3, min_clients=1)
    grid.sent.clear()
    roster.refresh(1)
    assert grid.sent == []
    grid.here = grid.here - {5, 6}
    roster.refresh(2)
    assert grid.sent == [] and roster.everyone(2) == sorted(grid.here)
    grid.here = grid.here | {5}
    roster.refresh(3)
    assert [message.metadata.dst_node_id for message in grid.sent] == [5]
    assert roster.everyone(3) == sorted(grid.here)


def test_of_an_id_that_a_node_has_given_up_nothing_is_left() -> None:
    claimed = {2: 0, 3: 7}

    def moving(message: Message, context: Context) -> Message:
        client = claimed[message.metadata.dst_node_id]
        facts = {wire.CLIENT_ID: client, wire.NUM_EXAMPLES: 5, wire.NAME: f"site-{client}", wire.FEW_HELD: "yes"}
        return Message(RecordDict({wire.ROLL_CALL: ConfigRecord(facts)}), reply_to=message)

    grid = Changing(2)
    grid._app = moving  # type: ignore[assignment]
    roster = Roster(grid, compose(["clients=9", "min_clients=1", "node_ids=any"]), CONFIG)
    roster.call()
    assert sorted(roster.facts) == sorted(roster.few_held) == [0, 7]
    claimed[3], grid.here = 8, {2}
    roster.refresh(1)
    grid.here = {2, 3}  # the second node is connected again, and says something else
    roster.refresh(2)
    assert sorted(roster.facts) == sorted(roster.few_held) == [0, 8]
    assert 7 not in roster.names


def test_the_nodes_of_a_grid_that_knows_ids_only() -> None:
    """They are those that Flower makes of the ids, in the order of the ids."""
    grid = Changing(30)
    grid.here = {7, 31, 2, 30}
    found = grids.nodes(grid)
    assert found == [grids.ConnectedNode(i, str(i)) for i in (2, 7, 30, 31)]
    theirs = sorted(
        (info.node_id, info.name, info.registered_at, info.last_activated_at) for info in grid.get_nodes()
    )
    assert [(each.id, each.name, each.registered, each.connected) for each in found] == theirs


def test_a_client_with_other_code_is_refused() -> None:
    grid = Changing(4)
    roster = Roster(grid, compose(["clients=4", "min_clients=2"]), CONFIG, code=CODE)
    roster.call()
    assert sorted(roster.facts) == [0, 3]
    first, second = roster.refused().values()
    assert f"has other client code than the server ('other', not {CODE}): start both from one copy" in first
    assert "allow=[other_client_code]" in first and "('unknown', not" in second


def test_a_run_in_which_all_have_other_code_says_so_once() -> None:
    roster = Roster(Changing(2), compose(["clients=2"]), CONFIG, code="f" * 16)
    with pytest.raises(RunError, match=r"only 0 of at least 2 .* has other client code than the server"):
        roster.call()


def test_what_is_permitted_is_a_name_of_the_list() -> None:
    assert code_of_clients(compose(["allow=[other_client_code]"])) == ""
    assert len(code_of_clients(compose([]))) == 16
    with pytest.raises(ConfigError, match=r"unknown name in allow 'other_code'.*Known: .*other_client_code"):
        compose(["allow=[other_code]"])


def test_a_node_where_the_run_waits_for_an_approval_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    approved: set[int] = set()

    def careful(message: Message, context: Context) -> Message:
        number = int(context.node_config["partition-id"])
        if number == 1 and not approved:
            return Message(Error(wire.WAITS, "the run waits for an approval at this node"), reply_to=message)
        return client(message, context)

    grid = Changing(3)
    grid._app = careful  # type: ignore[assignment]
    roster = Roster(grid, compose(["clients=3", "min_clients=2"]), CONFIG)
    roster.call()
    assert sorted(roster.facts) == [0, 2] and roster.refused() == {}
    grid.sent.clear()
    roster.refresh(1)
    assert grid.sent == []  # it was asked a moment ago
    monkeypatch.setattr(roll_call, "APPROVAL_SECONDS", 0.0)
    roster._roll_call._held = dict.fromkeys(roster._roll_call._held, 0.0)
    roster.refresh(2)
    assert [message.metadata.dst_node_id for message in grid.sent] == [3] and len(roster.facts) == 2
    approved.add(1)
    roster.refresh(3)
    assert sorted(roster.facts) == [0, 1, 2] and roster.everyone(3) == [2, 3, 4]
    grid.sent.clear()
    roster.refresh(4)
    assert grid.sent == []


@pytest.mark.slow
def test_a_run_that_nobody_approves_says_so() -> None:
    def careful(message: Message, context: Context) -> Message:
        return Message(Error(wire.WAITS, "the run waits for an approval at this node"), reply_to=message)

    grid = Changing(2)
    grid._app = careful  # type: ignore[assignment]
    with pytest.raises(
        RunError, match=r"only 0 of at least 2 clients can take part: node .* waits for an approval"
    ):
        Roster(grid, compose(["clients=2", "node_wait=1"]), CONFIG).call()
