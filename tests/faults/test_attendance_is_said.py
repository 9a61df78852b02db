"""Who timed out, joined, left or was refused: a line of the log, a row of clients.jsonl, a counter."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import pytest
from named_nodes import HOSPITALS, NamedGrid
from world import Away, Fault, play

from fedstride.errors import RunError
from fedstride.flower.grids import ConnectedNode
from server_app.records.line_files import read_lines


def rows_with(folder: Path, *statuses: str) -> list[tuple[int, object, str]]:
    rows = read_lines(folder / "clients.jsonl")
    return [(row["round"], row["client"], row["status"]) for row in rows if row["status"] in statuses]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "flwr"]


@pytest.fixture(autouse=True)
def all_lines(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's logger does not pass its records on."""
    logger = logging.getLogger("flwr")
    monkeypatch.setattr(logger, "propagate", True)
    caplog.set_level(logging.INFO, "flwr")


@pytest.mark.slow
@pytest.mark.parametrize(("client", "first", "back"), [(2, 2, 4), (0, 2, 3), (3, 3, 5)])
def test_a_node_that_leaves_and_comes_back(
    tmp_path: Path, monkeypatch, caplog, client: int, first: int, back: int
) -> None:
    folder, _ = play(tmp_path, monkeypatch, [Away(client, first=first, back=back)], "rounds=5")
    assert rows_with(folder, "left", "joined") == [(first, client, "left"), (back, client, "joined")]
    said = [line for line in lines(caplog) if f"client {client} " in line]
    assert said[0] == f"round {first}: client {client} is no longer connected"
    assert f"round {back}: client {client} has joined" in said
    used = [server_round for server_round, who, _ in rows_with(folder, "used") if who == client]
    assert used == [t for t in range(1, 6) if not first <= t < back]


@pytest.mark.slow
@pytest.mark.parametrize(("client", "back"), [(3, 3), (1, 2), (0, 4)])
def test_a_node_that_joins_late(tmp_path: Path, monkeypatch, caplog, client: int, back: int) -> None:
    folder, _ = play(tmp_path, monkeypatch, [Away(client, first=0, back=back)], "rounds=4", "min_clients=3")
    assert rows_with(folder, "left", "joined") == [(back, client, "joined")]
    assert f"round {back}: client {client} has joined" in lines(caplog)


@pytest.mark.parametrize(("client", "server_round"), [(2, 2), (0, 1), (3, 3)])
def test_a_node_that_does_not_reply_in_time(
    tmp_path: Path, monkeypatch, caplog, client: int, server_round: int
) -> None:
    folder, _ = play(tmp_path, monkeypatch, [Fault(client, server_round, lambda reply: None)], "rounds=3")
    assert rows_with(folder, "no reply") == [(server_round, client, "no reply")]
    (said,) = (line for line in lines(caplog) if "no reply in" in line)
    assert said.startswith(f"round {server_round}: client {client}: no reply in ")


def test_a_run_without_any_of_it_has_no_such_row_or_line(tmp_path: Path, monkeypatch, caplog) -> None:
    folder, _ = play(tmp_path, monkeypatch, [], "rounds=3")
    assert Counter(row["status"] for row in read_lines(folder / "clients.jsonl")) == {"used": 12}
    assert [line for line in lines(caplog) if "joined" in line or "connected" in line] == []


class Twins(NamedGrid):
    """Four hospitals, two of which have one partition. `registered`: the names that the server knows."""

    registered: ClassVar[Mapping[int, str]] = dict(enumerate(HOSPITALS))

    def __init__(self, clock, clients, faults) -> None:
        super().__init__(clock, clients, faults)
        for context in self._contexts.values():
            if context.node_config["partition-id"] == 3:
                context.node_config["partition-id"] = 1


class TwinsUnregistered(Twins):
    """The same, of nodes that only state their names."""

    registered: ClassVar[Mapping[int, str]] = {}


class TwinsLeaving(Twins):
    """The same, and the refused node is gone when the run gives up."""

    def get_nodes(self):
        nodes = super().get_nodes()
        was_asked = any(self.place.get(node) == 3 for node in getattr(type(self), "told", ()))
        return [node for node in nodes if not (was_asked and self.place.get(node.node_id) == 3)]


@pytest.mark.parametrize("grid", [Twins, TwinsUnregistered, TwinsLeaving])
def test_a_refused_node_is_not_called_absent(tmp_path: Path, monkeypatch, grid: type[NamedGrid]) -> None:
    grid.told = set()
    with pytest.raises(RunError) as caught:
        play(tmp_path, monkeypatch, [], "rounds=2", f"nodes={','.join(HOSPITALS)}", "node_wait=5", grid=grid)
    assert "claims client id 1, which belongs to " in str(caught.value)
    assert "not connected" not in str(caught.value)


def test_a_node_that_never_came_is_absent(tmp_path: Path, monkeypatch) -> None:
    """The other message: of five chosen names, one belongs to no node, and one node is refused."""
    given = ("clients=5", "min_clients=4", f"nodes={','.join(HOSPITALS)},hospice", "node_wait=5")
    with pytest.raises(
        RunError, match=r"clients can take part: hospice not connected; hospital-d claims client id 1"
    ):
        play(tmp_path, monkeypatch, [], "rounds=2", *given, grid=Twins)


def test_names_stand_in_messages_and_not_numbers() -> None:
    assert [str(ConnectedNode(71, "a", name)) for name in ("", "ward-3", "a b")] == [
        "node 71",
        "ward-3",
        "node 71 ('a b')",
    ]
