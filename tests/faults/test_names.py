"""Nodes with names: in records, in the choice of who takes part, and names that are wrong or taken."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from desk import table, weights
from named_nodes import HOSPITALS, NamedGrid
from world import Away, play, play_on

from fedstride.errors import ConfigError, ReplyError, RunError
from fedstride.flower.grids import ConnectedNode
from fedstride.messages import wire
from fedstride.messages.node_names import ChosenNodes, is_name
from lab.plots.fedalr import _places
from server_app.config.compose import compose
from server_app.exchange.roll_call_replies import name_of
from server_app.records.checkpoint import newest_checkpoint
from server_app.records.line_files import read_lines


def clients_of(folder: Path) -> set[object]:
    return {row["client"] for row in read_lines(folder / "clients.jsonl")}


def refusals(folder: Path) -> list[str]:
    return [row["reason"] for row in read_lines(folder / "clients.jsonl") if row["status"] == "refused"]


@pytest.mark.slow
def test_names_stand_for_numbers_and_change_no_bit(tmp_path: Path, monkeypatch) -> None:
    given = ("rounds=3", "strategy=fedalr", "nodes=hospital-*")
    monkeypatch.setattr("world.check", lambda *_: None)  # it compares rows with client ids
    named, _ = play(tmp_path, monkeypatch, [], *given, name="named", grid=NamedGrid)
    plain, _ = play(tmp_path, monkeypatch, [], "rounds=3", "strategy=fedalr", name="plain")
    assert clients_of(named) == set(HOSPITALS)
    assert clients_of(plain) == {0, 1, 2, 3}
    assert weights(named) == weights(plain)
    assert [row["fedalr/client"] for row in read_lines(named / "metrics.jsonl")[1:]] == [list(HOSPITALS)] * 3
    assert {owner.name for owner in newest_checkpoint(named)[0].owners.values()} == set(HOSPITALS)


@pytest.mark.slow
def test_names_are_kept_in_a_resumed_run_also_of_absent_clients(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("world.check", lambda *_: None)
    folder, _ = play(tmp_path, monkeypatch, [], "rounds=2", "min_clients=3", grid=NamedGrid)
    config = newest_checkpoint(folder)[0].owners
    assert [config[client].name for client in range(4)] == list(HOSPITALS)
    play_on(folder, monkeypatch, [Away(3, first=0, back=99)], "rounds=3", "min_clients=3")  # nodes without names
    assert {row["client"] for row in read_lines(folder / "clients.jsonl") if row["round"] == 3} == {0, 1, 2}


class OneMore(NamedGrid):
    """Four hospitals and a clinic, which states the partition of the first hospital."""

    extra = 1
    registered: ClassVar[Mapping[int, str]] = {**dict(enumerate(HOSPITALS)), 4: "clinic"}
    stated = registered


class OneMoreUnregistered(OneMore):
    """Keys without names: only the nodes say who they are."""

    registered: ClassVar[Mapping[int, str]] = {}


@pytest.mark.slow
@pytest.mark.parametrize("grid", [OneMore, OneMoreUnregistered])
def test_a_node_that_is_not_chosen_does_no_harm(tmp_path: Path, monkeypatch, grid: type[NamedGrid]) -> None:
    monkeypatch.setattr("world.check", lambda *_: None)
    grid.told = set()
    folder, seen = play(tmp_path, monkeypatch, [], "rounds=2", "nodes=hospital-*", grid=grid)
    plain, _ = play(tmp_path, monkeypatch, [], "rounds=2", name="plain")
    assert weights(folder) == weights(plain)
    assert table(folder) == table(plain)
    assert clients_of(folder) == set(HOSPITALS)
    assert refusals(folder) == []
    assert [len(cohort) for cohort in seen.cohorts] == [4, 4]
    assert len(grid.told) == (4 if grid is OneMore else 5)  # a registered name is known before any message


def test_one_node_more_than_clients_does_not_end_the_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("world.check", lambda *_: None)
    folder, seen = play(tmp_path, monkeypatch, [], "rounds=2", grid=OneMore)
    assert [len(cohort) for cohort in seen.cohorts] == [4, 4]
    (reason,) = refusals(folder)
    assert reason.startswith("clinic claims client id 0, which belongs to hospital-a; ")


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        (
            "hospital-a,hospital-b,hospital-c,hospital-x",
            "hospital-x is missing; connected: hospital-a, hospital-b, ",
        ),
        ("hospital-a,hospital-b,clinic-*,ward-?", "clinic-*, ward-? are missing; connected: hospital-a, "),
    ],
)
def test_who_is_missing_is_said_after_the_wait(tmp_path: Path, monkeypatch, nodes: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        play(tmp_path, monkeypatch, [], f"nodes={nodes}", "node_wait=30", grid=NamedGrid)
    assert said in str(caught.value)
    assert "after 30 seconds (node_wait)" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_stated_name_that_is_missing_is_said_too(tmp_path: Path, monkeypatch) -> None:
    nodes = "nodes=hospital-a,hospital-b,hospital-c,hospital-x"
    with pytest.raises(RunError) as caught:
        play(tmp_path, monkeypatch, [], nodes, "node_wait=30", grid=OneMoreUnregistered)
    assert str(caught.value) == "only 3 of at least 4 clients can take part: hospital-x not connected"


class Twins(NamedGrid):
    """Two nodes with one name, and keys that were registered without one."""

    registered: ClassVar[Mapping[int, str]] = {}
    stated: ClassVar[Mapping[int, str]] = {0: "hospital-a", 1: "hospital-b", 2: "hospital-a"}


def test_two_nodes_with_one_name(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("world.check", lambda *_: None)
    folder, seen = play(tmp_path, monkeypatch, [], "rounds=1", "min_clients=3", grid=Twins)
    assert [len(cohort) for cohort in seen.cohorts] == [3]
    assert clients_of(folder) == {"hospital-a", "hospital-b", 3, None}
    (reason,) = refusals(folder)
    assert "has the name 'hospital-a', which belongs to node 2; give each node another name" in reason


class Impostor(NamedGrid):
    """The second node states the name of the first, but its key has its own."""

    stated: ClassVar[Mapping[int, str]] = {1: "hospital-a"}


def test_another_name_than_the_registered_one_is_refused(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr("world.check", lambda *_: None)
    folder, _ = play(tmp_path, monkeypatch, [], "rounds=1", "min_clients=3", grid=Impostor)
    (reason,) = refusals(folder)
    assert "states the name 'hospital-a', but its key is registered as 'hospital-b'; start it with" in reason
    assert clients_of(folder) == {0, 2, 3, None}  # a partition id, where no name is stated


def test_the_name_of_a_client() -> None:
    node = ConnectedNode(2**61, "key", "hospital-a")
    assert name_of(node, {wire.CLIENT_ID: 0}) == ""
    assert name_of(node, {wire.CLIENT_ID: node.id}) == "hospital-a"  # instead of a number of nineteen digits
    assert name_of(node, {wire.CLIENT_ID: 0, wire.NAME: "hospital-a"}) == "hospital-a"
    assert name_of(ConnectedNode(1, "key", "no name!"), {wire.CLIENT_ID: 1}) == ""
    for stated in ("7", "a b", "a" * 65, "\x1b[31m", "=1+1"):
        with pytest.raises(ReplyError, match="which is not allowed: it must be a letter, then"):
            name_of(node, {wire.CLIENT_ID: 0, wire.NAME: stated})


# ---------------------------------------------------------------- the choice


@pytest.mark.parametrize("text", ["", "a,,b", "a b", "7", "a,a", "-x", "$(x)", "ä", "a" * 65])
def test_a_choice_that_is_none_is_refused(text: str) -> None:
    assert ChosenNodes(text).problem
    if text:
        with pytest.raises(ConfigError, match="nodes = "):
            compose(["clients=2", f"nodes='{text}'"])


def test_a_choice() -> None:
    chosen = ChosenNodes("hospital-a, clinic-*,ward-?")
    assert chosen.problem is None
    assert [chosen.has(name) for name in ("hospital-a", "hospital-b", "clinic-", "ward-1", "ward-12", "")] == [
        True, False, True, True, False, False,
    ]  # fmt: skip
    assert chosen.missing(["hospital-a", "x"]) == ["clinic-*", "ward-?"]
    assert ChosenNodes(None).has("") and not ChosenNodes(None).missing([])
    assert is_name("A1.b_c-d") and not is_name(1) and not is_name("a\n")


@pytest.mark.parametrize("text", ["nodes=a,b", "nodes='a,b'", 'nodes="a,b"', "nodes=a, b"])
def test_names_need_no_quotes(text: str) -> None:
    assert compose(["clients=2", text]).nodes in ("a,b", "a, b")
    assert compose(["nodes=hospital-*"]).nodes == "hospital-*"
    assert compose(["nodes=null"]).nodes is None


def test_names_must_be_as_many_as_clients() -> None:
    with pytest.raises(ConfigError, match=r"clients = 3 names, or patterns; or set clients=2"):
        compose(["clients=3", "nodes=a,b"])


def test_a_run_on_this_machine_has_no_names_to_choose(tmp_path: Path) -> None:
    from desk import play as play_here

    with pytest.raises(ConfigError, match="leave nodes out, or submit the run"):
        play_here(tmp_path, "nodes=hospital-*", "clients=2", "rounds=1", "strategy=fedavg")
    assert not list(tmp_path.iterdir())


def test_places_in_the_plot() -> None:
    assert _places([0, 2, 1], 3) == {0: 0, 2: 2, 1: 1}
    assert _places(["b", "a", 0, 2**61], 4) == {0: 0, 2**61: 1, "a": 2, "b": 3}
    assert json.dumps(_places(["a"], 0)) == '{"a": 0}'
