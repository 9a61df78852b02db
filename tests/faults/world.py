"""A federation with faults, a clock whose time passes only during `sleep`, and checks for all faults."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from desk import SMALL
from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.proto.node_pb2 import NodeInfo

from client_app.app import app as real_client
from client_app.state import state_folder
from fedstride.arrays.named import Layout, views
from fedstride.flower import identity
from fedstride.messages import wire
from lab.engine.local_grid import LocalGrid
from server_app import preparation, session
from server_app.config.compose import compose
from server_app.exchange import expected_nodes, roll_call, roster, sending
from server_app.records.line_files import read_lines
from server_app.rounds import Round

Change = Callable[[Message], Message | None]
"""Changes a reply: returns another reply, or None if no reply is sent."""


@dataclass(frozen=True)
class Fault:
    """A fault of one client in one round."""

    client: int
    server_round: int
    change: Change | None = None
    delay: float = 1.0  # seconds until the reply arrives
    copies: int = 1
    rejected: bool = False  # the Grid does not accept the message to the client


@dataclass(frozen=True)
class Away:
    """A node that is disconnected from round `first` to before round `back`, and can get a new node id."""

    client: int
    first: int
    back: int
    new_id: int | None = None
    new_key: bool = True  # with a new id: another key; False: its key was registered again
    forgets: bool = False  # it loses its memory
    wiped: bool = False  # it loses its disk


@dataclass(frozen=True)
class Silence:
    """A node whose ClientApp hangs from round `first` to before round `back`; its replies arrive before `back`."""

    client: int
    first: int
    back: int = 10**6
    only: str = ""  # "train", "evaluate" or "query": to messages of this type only


@dataclass(frozen=True)
class Stranger:
    """A node in addition to those of the clients, which states an id. It has the client's half of partition 0."""

    node: int
    claims: Any
    first: int = 0  # the round from which it is connected
    registered: str = "9"  # later than the clients' keys


class Clock:
    """Replaces `time` in the modules that wait."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def install(self, monkeypatch: Any) -> None:
        for module in (sending, expected_nodes, roll_call, roster):
            monkeypatch.setattr(module, "time", self)


@dataclass(eq=False)
class _Underway:
    due: float
    reply: Message


class FaultyGrid(LocalGrid):
    """The in-process Grid with faults: replies arrive at given times."""

    def __init__(self, clock: Clock, clients: int, faults: Iterable[Any]) -> None:
        super().__init__(real_client, clients)
        self.clock = clock
        rows = list(faults)
        self.silences = [f for f in rows if isinstance(f, Silence)]
        self.strangers = {f.node: f for f in rows if isinstance(f, Stranger)}
        self.key_of = {node: node for node in self._contexts}
        self.held: list[tuple[Silence, Message]] = []  # replies that a hanging node sends when it continues
        self.faults = {(f.client, f.server_round): f for f in rows if isinstance(f, Fault)}
        self.absences = [f for f in rows if isinstance(f, Away)]
        self.server_round = 0
        self.underway: list[_Underway] = []
        self.messages: list[Message] = []  # the messages for training
        self.back: set[Away] = set()
        self.node_of = {self._partition(node): node for node in self._contexts}
        for node in self.strangers:
            first = self._contexts[2]
            self._contexts[node] = Context(
                first.run_id, node, dict(first.node_config), RecordDict(), first.run_config
            )
            self.key_of[node] = node

    def _partition(self, node: int) -> int:
        return int(self._contexts[node].node_config["partition-id"])

    # The loop gets the node ids at the beginning of each round, before the messages of the round are sent.
    def get_node_ids(self) -> Iterable[int]:
        gone = set()
        self._release([each for each in self.held if self.server_round + 1 >= each[0].back])
        for absence in self.absences:
            upcoming = self.server_round + 1
            if absence.first <= upcoming < absence.back:
                gone.add(self.node_of[absence.client])
            elif upcoming >= absence.back:
                self._bring_back(absence)
        gone |= {node for node, each in self.strangers.items() if self.server_round + 1 < each.first}
        return [node for node in self._contexts if node not in gone]

    def get_nodes(self) -> list[NodeInfo]:
        return [
            NodeInfo(
                node_id=node,
                name=f"site-{node}",
                public_key=str(self.key_of[node]).encode(),
                registered_at=self.strangers[node].registered if node in self.strangers else "1",
            )
            for node in self.get_node_ids()
        ]

    def _bring_back(self, absence: Away) -> None:
        node = self.node_of[absence.client]
        context = self._contexts[node]
        if absence.forgets:
            context.state.clear()
        if absence.wiped and absence not in self.back:  # only once: it saves new states afterwards
            for folder in state_folder.root(context.node_config).glob(f"*/{absence.client}"):
                shutil.rmtree(folder)
        self.back.add(absence)
        if absence.new_id is not None and node != absence.new_id:
            del self._contexts[node]
            self._contexts[absence.new_id] = Context(
                context.run_id, absence.new_id, context.node_config, RecordDict(), context.run_config
            )
            self.node_of[absence.client] = absence.new_id
            self.key_of[absence.new_id] = absence.new_id if absence.new_key else self.key_of[node]

    def push_messages(self, messages: Iterable[Message]) -> list[Any]:
        ids: list[Any] = []
        for message in messages:
            if message.metadata.message_type == "train":
                self.server_round = int(message.content["config"]["server-round"])
                self.messages.append(message)
            node = message.metadata.dst_node_id
            client = -1 if node in self.strangers else self._partition(node)
            fault = self.faults.get((client, self._round_of(message)))
            if fault is not None and fault.rejected:
                ids.append(None)
                continue
            ids.append(identity.stamp(message))
            reply: Message | None = self._deliver(message)
            if fault is not None and fault.change is not None and reply is not None:
                reply = fault.change(reply)
            if reply is not None and node in self.strangers:
                self._claim(reply, self.strangers[node].claims)
            silence = self._silence(client, message)
            if silence is not None and reply is not None:
                self.held.append((silence, reply))
                continue
            for _ in range(fault.copies if fault else 1):
                if reply is not None:
                    self.underway.append(_Underway(self.clock.now + (fault.delay if fault else 1.0), reply))
        return ids

    def _release(self, replies: list[tuple[Silence, Message]]) -> None:
        """Let held replies arrive now."""
        for each in replies:
            self.held.remove(each)
            self.underway.append(_Underway(self.clock.now, each[1]))

    def _claim(self, reply: Message, claims: Any) -> None:
        if wire.ROLL_CALL in reply.content:
            facts = dict(reply.content[wire.ROLL_CALL])
            reply.content[wire.ROLL_CALL] = ConfigRecord({**facts, wire.CLIENT_ID: claims})

    def _silence(self, client: int, message: Message) -> Silence | None:
        kind = str(message.metadata.message_type)
        now = self.server_round + (kind == "query")  # a roll call belongs to the upcoming round
        return next(
            (s for s in self.silences if s.client == client and s.first <= now < s.back and s.only in ("", kind)),
            None,
        )

    def _round_of(self, message: Message) -> int:
        return self.server_round if message.metadata.message_type == "train" else 0

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        wanted = set(message_ids)
        due = [
            item
            for item in self.underway
            if item.due <= self.clock.now and item.reply.metadata.reply_to_message_id in wanted
        ]
        self.underway = [item for item in self.underway if item not in due]
        return [item.reply for item in due]


@dataclass
class Seen:
    """What was observed in a run, for each round."""

    models: list[dict[str, np.ndarray]] = field(default_factory=list)
    sent: list[dict[str, np.ndarray]] = field(default_factory=list)
    cohorts: list[Any] = field(default_factory=list)
    changed: list[bool] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)  # the messages for training
    seconds: list[float] = field(default_factory=list)  # the clock at the end of each round


class Watcher:
    """An observer that records what is needed to check a run afterwards."""

    def __init__(self, strategy: Any, clock: Clock) -> None:
        self.strategy = strategy
        self.clock = clock
        self.seen = Seen()

    def replied(self, server_round: int, done: int, total: int) -> None: ...

    def round_done(self, done: Round) -> None:
        self.seen.models.append({name: array.copy() for name, array in views(done.arrays).items()})
        self.seen.changed.append(done.changed)
        self.seen.seconds.append(self.clock.now)
        if done.number:
            self.seen.sent.append(self.strategy.sent)
            self.seen.cohorts.append(self.strategy.last_cohort)


def play(
    tmp_path: Path,
    monkeypatch: Any,
    faults: Sequence[Any],
    *overrides: str,
    name: str = "run",
    grid: type[FaultyGrid] = FaultyGrid,
) -> tuple[Path, Seen]:
    """Execute a run with faults (default: FedAvg, 4 clients, 4 rounds); return its folder and observations."""
    small = [key for key in SMALL if not ("two_d_lrd" in str(overrides) and "local_steps" in key)]  # A4-10
    given = [*small, "strategy=fedavg", "rounds=4", "timeout=60", f"out='{tmp_path}'", f"name={name}", *overrides]
    config = compose(given)
    clock = Clock()
    clock.install(monkeypatch)
    prepared = preparation.prepare(config)
    watcher = Watcher(prepared.strategy, clock)
    nodes = grid(clock, config.clients, faults)
    watcher.seen.messages = nodes.messages
    session.run(nodes, prepared, observers=[watcher])
    weighting = None if _innermost(config) in NO_MEAN else prepared.strategy.weighting
    check(tmp_path / name, watcher.seen, config.screening.quorum, weighting)
    return tmp_path / name, watcher.seen


def play_on(folder: Path, monkeypatch: Any, faults: Sequence[Any], *overrides: str) -> list[Any]:
    """Resume a run in a federation with faults; returns the cohorts of its further rounds."""
    config = compose([f"resume='{folder}'", *overrides])
    clock = Clock()
    clock.install(monkeypatch)
    prepared = preparation.prepare(config)
    watcher = Watcher(prepared.strategy, clock)
    session.run(FaultyGrid(clock, config.clients, faults), prepared, observers=[watcher])
    return watcher.seen.cohorts


NO_MEAN = ("feddyn",)
"""Rules whose model is not a mean of the replies."""


def _innermost(config: Any) -> str:
    spec = config.strategy
    while hasattr(spec, "inner"):
        spec = spec.inner
    return str(spec.name)


def check(folder: Path, seen: Seen, quorum: int, weighting: str | None) -> None:
    """Check what must hold after any faults.

    Each round is recorded once; each reply counts at most once; shares sum to 1; the model is computed from the
    accepted replies (their mean by `weighting`; None: another rule), and does not change if they are too few.
    """
    rows = read_lines(folder / "metrics.jsonl")
    clients = read_lines(folder / "clients.jsonl")
    assert [row["round"] for row in rows] == list(range(len(rows)))
    keys = [(row["round"], row["client"], row.get("node")) for row in clients if row["status"] != "joined"]
    assert len(keys) == len(set(keys))
    for t, (before, after, sent, cohort) in enumerate(
        zip(seen.models, seen.models[1:], seen.sent, seen.cohorts, strict=False), start=1
    ):
        used = [row for row in clients if row["round"] == t and row["status"] == "used"]
        assert sorted(row["client"] for row in used) == [reply.client_id for reply in cohort.replies]
        assert rows[t]["clients"] == len(used)
        assert all(
            row["reason"] for row in clients if row["round"] == t and row["status"] not in ("used", "joined")
        )
        for name in before:
            np.testing.assert_array_equal(sent[name], before[name])
        if len(cohort) < quorum:
            assert not seen.changed[t]
            assert all(np.array_equal(before[name], after[name]) for name in before)
            continue
        shares = cohort.shares(weighting or "examples")
        assert math.isclose(math.fsum(shares), 1.0, rel_tol=1e-12)
        assert all(np.isfinite(array).all() for array in after.values())
        for name in Layout.of(sent).parameters if weighting else ():
            mean = sum(
                p * reply.model[name].astype(np.float64) for p, reply in zip(shares, cohort.replies, strict=True)
            )
            np.testing.assert_allclose(after[name], mean, rtol=1e-5, atol=1e-7)


def error(code: int, reason: str | None = None) -> Change:
    return lambda reply: failed(reply, code, f"reason of code {code}" if reason is None else reason)


def failed(reply: Message, code: int, reason: str) -> Message:
    """A copy of the reply with an error instead of content."""
    broken = object.__new__(Message)
    broken.__dict__.update(reply.__dict__)
    broken.__dict__["_content"] = None
    broken.__dict__["_error"] = Error(code, reason)
    return broken
