"""The loop over rounds, for any Flower strategy: through its four verbs only.

Knows the order of a round and when a run must end; does not know rules, files or screens. Flower's own
`Strategy.start` has no hooks, no early stop and no resume, and is not used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedstride import wire
from fedstride.errors import RunError
from strategies.norms import NormAnalysis

from .config.schema import Config
from .exchange import CohortGrid, exchange
from .roll_call import Roster
from .rows import Row, client_rows, known_names

Accepted = Mapping[int, int]
"""The last round whose reply was accepted, by client id: which version of its state a client is to load."""


@dataclass(frozen=True)
class Round:
    """A round that is over; round 0 is the initial model."""

    number: int
    arrays: ArrayRecord  # the model that stands now
    row: Row
    clients: list[Row] = field(default_factory=list)
    accepted: Accepted = field(default_factory=dict)
    changed: bool = True  # False where too few replies were usable


class Observer(Protocol):
    """Who is told what happens; see `records.py`."""

    def replied(self, server_round: int, done: int, total: int) -> None:
        """A client of the round has answered, the `done`-th of `total`."""

    def round_done(self, done: Round) -> None:
        """A round is over."""


@dataclass(frozen=True)
class Federation:
    """Who trains, how, and who is told."""

    grid: Grid
    strategy: NormAnalysis
    config: Config
    roster: Roster
    told: ConfigRecord  # what every client is told
    evaluate: Callable[[ArrayRecord], Mapping[str, float]]
    observers: Sequence[Observer]
    oldest: Callable[[int], int | None] = lambda client: None  # see `Records.oldest`

    def rounds(self, start: Round | None, initial: ArrayRecord) -> Iterator[Round]:
        """Train round after round; yields each when it is over and its observers know.

        Begins with round 0, the initial model, or after `start`, the last round of a run that goes on.
        Raises RunError after `max_empty_rounds` rounds one after the other that changed nothing.
        """
        if start is None:
            start = Round(0, initial, {"round": 0, **self._evaluation(initial)})
            self._tell(start)
            yield start
        last, empty = start, 0
        for server_round in range(start.number + 1, self.config.rounds + 1):
            last = self._one_round(server_round, last)
            self._tell(last)
            yield last
            empty = 0 if last.changed else empty + 1
            if empty >= self.config.max_empty_rounds:
                raise RunError(_why_empty(last, empty, self.config.screening.quorum))

    def _one_round(self, server_round: int, last: Round) -> Round:
        config = self.config
        self.roster.refresh()
        nodes = self.roster.cohort(server_round)
        cohort_grid = CohortGrid(self.grid, nodes)

        started = time.perf_counter()
        told = ConfigRecord(dict(self.told))
        # Nobody to ask: a strategy would wait for nodes, and this round has waited already.
        ask = self.strategy.configure_train if nodes else _nobody
        messages = list(ask(server_round, last.arrays, told, cohort_grid))
        for message in messages:
            self._name_version(message, last.accepted)
        replies = exchange(
            self.grid,
            messages,
            timeout=config.timeout,
            on_reply=lambda done, total: self._tell_reply(server_round, done, total),
        )
        trained = time.perf_counter()
        self._name(replies)

        in_order = [replies[node] for node in nodes if node in replies]
        model, metrics = self.strategy.aggregate_train(server_round, in_order)
        cohort = self.strategy.last_cohort
        assert cohort is not None
        aggregated = time.perf_counter()

        standing = last.arrays if model is None else model
        row: Row = {"round": server_round, "clients": len(cohort), **known_names(dict(metrics or {}))}
        row["screening/missing"] = len(messages) - len(replies)
        if _is_due(server_round, config):
            row |= self._evaluation(standing)
            if config.evaluate_clients:
                row |= self._federated_evaluation(cohort_grid, server_round, standing)
        clients = client_rows(server_round, messages, replies, cohort, self.roster)
        row["bytes/down"] = sum(client["bytes/down"] for client in clients)
        row["bytes/up"] = sum(client["bytes/up"] for client in clients)
        row["seconds/train"] = trained - started
        row["seconds/aggregate"] = aggregated - trained
        now = {} if model is None else {self.roster.client_of(r.node_id): server_round for r in cohort.replies}
        return Round(server_round, standing, row, clients, {**last.accepted, **now}, changed=model is not None)

    def _name_version(self, message: Message, accepted: Accepted) -> None:
        """Tell a client which version of its own state stands, and which older ones it may drop."""
        client = self.roster.client_of(message.metadata.dst_node_id)
        standing = accepted.get(client, 0)
        oldest = self.oldest(client)
        named = {wire.ACCEPTED: standing, wire.OLDEST: standing if oldest is None else min(standing, oldest)}
        key = self.strategy.configrecord_key
        told = ConfigRecord({**message.content.config_records[key], **named})
        message.content = RecordDict({**message.content, key: told})

    def _name(self, replies: Mapping[int, Message]) -> None:
        """Give the replies the ids of the roll call: who it is from is not for a reply to say."""
        for node, reply in replies.items():
            client = self.roster.client_of(node)
            for record in reply.content.metric_records.values() if reply.has_content() else ():
                if isinstance(record.get(wire.CLIENT_ID, client), int):  # what is no id is for the screen
                    record[wire.CLIENT_ID] = client

    def _evaluation(self, arrays: ArrayRecord) -> Row:
        started = time.perf_counter()
        return {**self.evaluate(arrays), "seconds/evaluate": time.perf_counter() - started}

    def _federated_evaluation(self, cohort_grid: CohortGrid, server_round: int, arrays: ArrayRecord) -> Row:
        told = ConfigRecord(dict(self.told))
        messages = list(self.strategy.configure_evaluate(server_round, arrays, told, cohort_grid))
        replies = exchange(self.grid, messages, timeout=self.config.timeout)
        self._name(replies)
        nodes = cohort_grid.get_node_ids()
        good = [replies[node] for node in nodes if node in replies and not replies[node].has_error()]
        return known_names(dict(self.strategy.aggregate_evaluate(server_round, good) or {}))

    def _tell(self, done: Round) -> None:
        for observer in self.observers:
            observer.round_done(done)

    def _tell_reply(self, server_round: int, done: int, total: int) -> None:
        for observer in self.observers:
            observer.replied(server_round, done, total)


def _nobody(server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> list[Message]:
    return []


def _is_due(server_round: int, config: Config) -> bool:
    every = config.evaluate_every
    return server_round == config.rounds or (every > 0 and server_round % every == 0)


def _why_empty(last: Round, empty: int, quorum: int) -> str:
    reasons = sorted({str(row["reason"]) for row in last.clients if "reason" in row})
    return (
        f"{empty} rounds one after the other had fewer than {quorum} usable replies, the last of them round "
        f"{last.number}: {'; '.join(reasons[:3]) or 'no client was reached'}"
    )
