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
from flwr.app import Context, Error, Message, RecordDict

from client_app import state
from client_app.app import app as real_client
from fedstride import flower
from fedstride.arrays import Layout, views
from lab.engine.local import LocalGrid
from server_app import exchange, roll_call, session
from server_app.config.compose import compose
from server_app.lines import read_lines
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
    forgets: bool = False  # it loses its memory
    wiped: bool = False  # it loses its disk


class Clock:
    """Replaces `time` in the modules that wait."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def install(self, monkeypatch: Any) -> None:
        for module in (exchange, roll_call):
            monkeypatch.setattr(module, "time", self)


@dataclass
class _Underway:
    due: float
    reply: Message


class FaultyGrid(LocalGrid):
    """The in-process Grid with faults: replies arrive at given times."""

    def __init__(self, clock: Clock, clients: int, faults: Iterable[Fault | Away]) -> None:
        super().__init__(real_client, clients)
        self.clock = clock
        rows = list(faults)
        self.faults = {(f.client, f.server_round): f for f in rows if isinstance(f, Fault)}
        self.absences = [f for f in rows if isinstance(f, Away)]
        self.server_round = 0
        self.underway: list[_Underway] = []
        self.messages: list[Message] = []  # the messages for training
        self.back: set[Away] = set()
        self.node_of = {self._partition(node): node for node in self._contexts}

    def _partition(self, node: int) -> int:
        return int(self._contexts[node].node_config["partition-id"])

    # The loop gets the node ids at the beginning of each round, before the messages of the round are sent.
    def get_node_ids(self) -> Iterable[int]:
        gone = set()
        for absence in self.absences:
            upcoming = self.server_round + 1
            if absence.first <= upcoming < absence.back:
                gone.add(self.node_of[absence.client])
            elif upcoming >= absence.back:
                self._bring_back(absence)
        return [node for node in self._contexts if node not in gone]

    def _bring_back(self, absence: Away) -> None:
        node = self.node_of[absence.client]
        context = self._contexts[node]
        if absence.forgets:
            context.state.clear()
        if absence.wiped and absence not in self.back:  # only once: it saves new states afterwards
            for folder in state.root(context.node_config).glob(f"*/{absence.client}"):
                shutil.rmtree(folder)
        self.back.add(absence)
        if absence.new_id is not None and node != absence.new_id:
            del self._contexts[node]
            self._contexts[absence.new_id] = Context(
                context.run_id, absence.new_id, context.node_config, RecordDict(), context.run_config
            )
            self.node_of[absence.client] = absence.new_id

    def push_messages(self, messages: Iterable[Message]) -> list[Any]:
        ids: list[Any] = []
        for message in messages:
            if message.metadata.message_type == "train":
                self.server_round = int(message.content["config"]["server-round"])
                self.messages.append(message)
            client = self._partition(message.metadata.dst_node_id)
            fault = self.faults.get((client, self._round_of(message)))
            if fault is not None and fault.rejected:
                ids.append(None)
                continue
            ids.append(flower.stamp(message))
            reply: Message | None = self._deliver(message)
            if fault is not None and fault.change is not None and reply is not None:
                reply = fault.change(reply)
            for _ in range(fault.copies if fault else 1):
                if reply is not None:
                    self.underway.append(_Underway(self.clock.now + (fault.delay if fault else 1.0), reply))
        return ids

    def _round_of(self, message: Message) -> int:
        return self.server_round if message.metadata.message_type == "train" else 0

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        due = [item for item in self.underway if item.due <= self.clock.now]
        self.underway = [item for item in self.underway if item.due > self.clock.now]
        return [item.reply for item in due]


@dataclass
class Seen:
    """What was observed in a run, for each round."""

    models: list[dict[str, np.ndarray]] = field(default_factory=list)
    sent: list[dict[str, np.ndarray]] = field(default_factory=list)
    cohorts: list[Any] = field(default_factory=list)
    changed: list[bool] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)  # the messages for training


class Watcher:
    """An observer that records what is needed to check a run afterwards."""

    def __init__(self, strategy: Any) -> None:
        self.strategy = strategy
        self.seen = Seen()

    def replied(self, server_round: int, done: int, total: int) -> None: ...

    def round_done(self, done: Round) -> None:
        self.seen.models.append({name: array.copy() for name, array in views(done.arrays).items()})
        self.seen.changed.append(done.changed)
        if done.number:
            self.seen.sent.append(self.strategy.sent)
            self.seen.cohorts.append(self.strategy.last_cohort)


def play(
    tmp_path: Path, monkeypatch: Any, faults: Sequence[Fault | Away], *overrides: str, name: str = "run"
) -> tuple[Path, Seen]:
    """Execute a run with faults (default: FedAvg, 4 clients, 4 rounds); return its folder and observations."""
    small = [key for key in SMALL if not ("two_d_lrd" in str(overrides) and "local_steps" in key)]  # A4-10
    given = [*small, "strategy=fedavg", "rounds=4", "timeout=60", f"out='{tmp_path}'", f"name={name}", *overrides]
    config = compose(given)
    clock = Clock()
    clock.install(monkeypatch)
    prepared = session.prepare(config)
    watcher = Watcher(prepared.strategy)
    grid = FaultyGrid(clock, config.clients, faults)
    watcher.seen.messages = grid.messages
    session.run(grid, prepared, observers=[watcher])
    weighting = None if _innermost(config) in NO_MEAN else prepared.strategy.weighting
    check(tmp_path / name, watcher.seen, config.screening.quorum, weighting)
    return tmp_path / name, watcher.seen


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
    keys = [(row["round"], row["client"]) for row in clients]
    assert len(keys) == len(set(keys))
    for t, (before, after, sent, cohort) in enumerate(
        zip(seen.models, seen.models[1:], seen.sent, seen.cohorts, strict=False), start=1
    ):
        used = [row for row in clients if row["round"] == t and row["status"] == "used"]
        assert sorted(row["client"] for row in used) == [reply.client_id for reply in cohort.replies]
        assert rows[t]["clients"] == len(used)
        assert all(row["reason"] for row in clients if row["round"] == t and row["status"] != "used")
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
