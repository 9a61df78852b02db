"""Who takes part in a run: which client each node is, who is there, and the draw of the cohort of each round.

A client's id is its partition id. So results do not depend on the random ids that Flower gives to nodes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from logging import INFO, WARNING
from typing import Any

from flwr.app import ConfigRecord, Message
from flwr.serverapp import Grid

from fedstride import seeds
from fedstride.errors import ReplyError, RunError
from fedstride.flower import grids
from fedstride.flower.grids import ConnectedNode
from fedstride.flower.logs import log
from fedstride.messages import wire
from fedstride.messages.node_names import ChosenNodes, is_name

from ..config.schema import Config
from .client_ids import Claims, Owner
from .expected_nodes import connected, listed
from .refusals import Refusals
from .roll_call import RollCall
from .roll_call_replies import check_code, facts_in, name_of
from .silent_clients import Attendance
from .timeouts import Patience

TOO_FEW = "it holds out fewer rows than its site says something of (min_rows), so it is not measured"


class Roster:
    """The clients that replied to the roll call, and the current node of each.

    `client_config`: the configuration that is sent to every client. `owners`: the node that each client id
    belongs to, if the run is resumed. `code`: the digest that clients must state; empty if any may be. `facts`:
    what each client replied, by id. `left_out`: the connected clients that are left out of the current round
    because they did not reply, each with the reason. `joined`, `gone`: the clients that are connected since the
    round before, and that no longer are. `names`: the names of clients, by client id and by node id (a
    partition id is below `clients`, a node id is a random number). `unpacking`: the nodes that understand a packed
    model.
    """

    def __init__(
        self,
        grid: Grid,
        config: Config,
        client_config: ConfigRecord,
        owners: Mapping[int, Owner] | None = None,
        code: str = "",
    ) -> None:
        self._grid = grid
        self._config = config
        self._code = code
        self._roll_call = RollCall(grid, config, client_config)
        # Where nodes have no keys, they belong to this run, and have other ids when it is resumed.
        self._claims = Claims(config.clients, config.node_ids, owners if grids.has_keys(grid) else None)
        self._chosen = ChosenNodes(config.nodes)
        self._others: dict[str, str] = {}  # nodes that are not meant, by key: the name that each states
        self._attendance = Attendance(config.mute_rounds)
        self._node_of: dict[int, int] = {}
        self._client_of: dict[int, int] = {}  # the same from node to client
        self._refusals = Refusals(grid)
        self._names_refused: set[str] = set()
        self._there: set[int] = set()  # the clients that are connected, as of the last round
        self.facts: dict[int, Mapping[str, Any]] = {}
        self.left_out: dict[int, str] = {}
        self.joined: list[int] = []
        self.gone: list[int] = []
        self.names = {client: owner.name for client, owner in self._claims.owners.items() if owner.name}
        self.unpacking: set[int] = set()

    @property
    def client_config(self) -> ConfigRecord:
        """What is sent to every client; it may be replaced."""
        return self._roll_call.content

    @client_config.setter
    def client_config(self, content: ConfigRecord) -> None:
        self._roll_call.content = content

    @property
    def owners(self) -> Mapping[int, Owner]:
        """The node that each client id belongs to. Empty if nodes have no keys, which outlast the run."""
        return dict(self._claims.owners) if grids.has_keys(self._grid) else {}

    @property
    def few_held(self) -> list[int]:
        """The clients that hold out too few rows to be measured, in order."""
        return sorted(client for client, facts in self.facts.items() if facts.get(wire.FEW_HELD))

    def call(self) -> None:
        """Send the roll call to the connected nodes at the start of the run, and wait until enough replied.

        If several nodes claim one client id, it belongs to the node whose key was registered first. Raises
        RunError if too few clients can take part.
        """
        needed, started = self._config.start_size, time.monotonic()
        patience = self._roll_call.wait_at_start()
        self._call_newcomers(patience)
        while len(self._node_of) < needed and self._may_grow(time.monotonic() - started):
            time.sleep(0.5)
            self._call_newcomers(patience)
        if len(self._node_of) < needed:
            faults = [*self._refusals.reasons, *self.without_answer().values()][:3]
            self._refusals.say(without=faults)
            raise RunError(self._too_few(needed, faults))
        self._refusals.say()
        self._there = set(self._connected())
        if grids.has_keys(self._grid):
            present = listed([str(self.label(client)) for client in sorted(self._there)])
            log(INFO, "%d of %d clients take part: %s", len(self._there), self._config.clients, present)

    def refresh(self, server_round: int) -> None:
        """Send the roll call to new nodes. If no client can take part, wait up to `node_wait` seconds for one."""
        deadline = time.monotonic() + self._config.node_wait
        patience = self._roll_call.wait_in_round()
        self._call_newcomers(patience)
        while not self._available(server_round) and time.monotonic() < deadline:
            time.sleep(0.5)
            self._call_newcomers(patience)
        self._refusals.say()
        self._note_changes(server_round)

    def cohort(self, server_round: int) -> list[int]:
        """The nodes of the round's cohort, in the order of client ids.

        The cohort is drawn from the clients that can take part, with a generator of (seed, round).
        """
        clients = sorted(self._available(server_round))
        size = self._config.cohort_size
        if size < len(clients):
            rng = seeds.generator(self._config.seed, "cohort", server_round)
            clients = sorted(clients[i] for i in rng.choice(len(clients), size, replace=False))
        return [self._node_of[client] for client in clients]

    def everyone(self, server_round: int) -> list[int]:
        """The nodes of all clients that can take part in a round, in the order of client ids."""
        return [self._node_of[client] for client in sorted(self._available(server_round))]

    def close(self, server_round: int, *, mute: Collection[int], used: Collection[int]) -> None:
        """Count who replied in a round, by client id. A client that is left out is sent a roll call."""
        for client in self._attendance.close(server_round, mute=mute, used=used):
            log(WARNING, "client %s did not reply and is left out; see its log", self.label(client))
            self._roll_call.ask_again(self._node_of[client])

    def without_answer(self) -> dict[int, str]:
        """The connected nodes that have not answered yet, each with the reason."""
        return self._roll_call.without_answer(self._nodes())

    def refused(self) -> dict[int, str]:
        """The nodes that were refused since the last call of this method, each with the reason."""
        return self._refusals.taken()

    def client_of(self, node: int) -> int:
        """The client id of a node; the node id itself if the node is unknown."""
        return self._client_of.get(node, node)

    def label(self, client: int) -> int | str:
        """What stands for a client in records: its name, or its id if it has none."""
        return self.names.get(client, client)

    # -------------------------------------------------------- who is there

    def _nodes(self) -> list[ConnectedNode]:
        """The connected nodes that are meant to take part, as far as is known."""
        return [node for node in connected(self._grid, self._chosen) if node.key not in self._others]

    def _present(self) -> set[int]:
        return set(self._grid.get_node_ids())

    def _connected(self) -> list[int]:
        present = self._present()
        return [client for client, node in self._node_of.items() if node in present]

    def _note_changes(self, server_round: int) -> None:
        """Log which clients are connected since the round before, and which no longer are."""
        there = set(self._connected())
        self.joined, self.gone = sorted(there - self._there), sorted(self._there - there)
        self._there = there
        for client in self.joined:
            log(INFO, "round %d: client %s has joined", server_round, self.label(client))
        for client in self.gone:
            log(
                WARNING,
                "round %d: client %s is no longer connected",
                server_round,
                self.label(client),
            )

    def _available(self, server_round: int) -> list[int]:
        connected = self._connected()
        self.left_out = self._attendance.out(server_round, connected)
        return [client for client in connected if client not in self.left_out]

    def _may_grow(self, elapsed: float) -> bool:
        return self._roll_call.may_bring_more(self._nodes(), elapsed)

    def _too_few(self, needed: int, faults: Sequence[str]) -> str:
        """The message for a run that cannot start."""
        known = [node.name for node in self._nodes()] + [str(self.label(client)) for client in self._node_of]
        known += self._names_refused  # they were connected, and their reasons are among the faults
        absent = [f"{listed(names)} not connected"] if (names := self._chosen.missing(known)) else []
        return (
            f"only {len(self._node_of)} of at least {needed} clients can take part: "
            f"{'; '.join([*absent, *faults])}"
        )

    # -------------------------------------------------------- the roll call

    def _call_newcomers(self, patience: Patience) -> None:
        """Ask the nodes that are newly connected, and register the replies."""
        nodes = self._nodes()
        replies = self._roll_call.replies(nodes, patience)
        if replies:
            self._register_all(nodes, replies)

    def _register_all(self, nodes: Iterable[ConnectedNode], replies: Mapping[int, Message]) -> None:
        """Register the valid replies, in the order in which the nodes' keys were registered."""
        connected = {node.key for node in nodes}
        for node in (node for node in nodes if node.id in replies):
            names = {node.name}
            try:
                facts = facts_in(node, replies[node.id])
                names.add(str(facts.get(wire.NAME, "")))
                self._register(node, facts, connected)
            except ReplyError as error:
                self._names_refused |= set(filter(is_name, names))
                self._refusals.add(node, str(error))
        self._node_of = {known: self._node_of[known] for known in self._claims.owners if known in self._node_of}
        self._client_of = {node: client for client, node in self._node_of.items()}
        self.unpacking = {node for client, node in self._node_of.items() if self.facts[client].get(wire.PACKED)}

    def _register(self, node: ConnectedNode, facts: Mapping[str, Any], connected: Collection[str]) -> None:
        name = name_of(node, facts)
        known_as = node.name if is_name(node.name) else name
        if not self._chosen.has(known_as):
            self._others[node.key] = known_as
            log(INFO, "%s takes no part, since it is not one of nodes = %s", node, self._config.nodes)
            return
        check_code(node, str(facts.get(wire.CODE, "")), self._code)
        former = self._claims.id_of(node)
        client = self._claims.settle(facts[wire.CLIENT_ID], node, connected, name)
        if former is not None and former not in self._claims.owners:
            for known in (self._node_of, self.facts, self.names):
                known.pop(former, None)
        for number in (client, node.id):
            self.names.pop(number, None)
            if name:
                self.names[number] = name
        before = self._node_of.get(client)
        if before is not None and before != node.id:
            log(INFO, "client %s is connected again, now as another node", self.label(client))
        self._node_of[client] = node.id
        if facts.get(wire.FEW_HELD) and client not in self.few_held:
            log(WARNING, "client %s: %s; it trains", self.label(client), TOO_FEW)
        self.facts[client] = {**facts, wire.CLIENT_ID: client}
        self._attendance.shows(client)
