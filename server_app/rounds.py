"""The loop over rounds, for any Flower strategy: through its four verbs only.

Knows the order of a round and when a run must end; does not know rules, files or screens. Flower's own
`Strategy.start` has no hooks, no early stop and no resume, and is not used.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from logging import WARNING
from typing import Any, Protocol

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore import log

from fedstride import flower, wire
from fedstride.errors import ReplyError, RunError
from fedstride.metrics import over_clients
from fedstride.schema import Config
from strategies.norms import NormAnalysis
from strategies.screening import Cohort

from .exchange import CohortGrid, exchange
from .roll_call import Roster

Row = dict[str, Any]
"""Plain numbers, strings or lists of them, by metric name: what a record holds of a round or a client."""

ClientStates = dict[int, dict[str, Any]]
"""What each client keeps from round to round, by client id: plain values."""

MAX_STATE = 65_536
"""Bytes that a client may keep, as JSON: they travel with every message to it and lie in every checkpoint."""

NAMES_OF_A_ROUND = ("round", "clients")
PREFIXES_OF_A_ROUND = ("test/", "seconds/")
PREFIXES_OF_NUMBERS = ("train/", "local/")
NAMES_OF_A_CLIENT = ("status", "reason", "norm", "note")
"""What a record says itself, and what it shows as one number: what clients report otherwise is not heard."""


@dataclass(frozen=True)
class Round:
    """A round that is over; round 0 is the initial model."""

    number: int
    arrays: ArrayRecord  # the model that stands now
    row: Row
    clients: list[Row] = field(default_factory=list)
    states: ClientStates = field(default_factory=dict)
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
                raise RunError(_why_empty(last, empty, self.config.quorum))

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
            self._hand_back_state(message, last.states)
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
        row: Row = {"round": server_round, "clients": len(cohort), **_known_names(dict(metrics or {}))}
        row["screen/missing"] = len(messages) - len(replies)
        if _is_due(server_round, config):
            row |= self._evaluation(standing)
            if config.evaluate_clients:
                row |= self._federated_evaluation(cohort_grid, server_round, standing)
        kept, refused = _states_in(cohort, self.roster)
        clients = _client_rows(server_round, messages, replies, cohort, self.roster)
        _note(clients, refused)
        row["bytes/down"] = sum(client["bytes/down"] for client in clients)
        row["bytes/up"] = sum(client["bytes/up"] for client in clients)
        row["seconds/train"] = trained - started
        row["seconds/aggregate"] = aggregated - trained
        states = last.states if model is None else last.states | kept
        return Round(server_round, standing, row, clients, states, changed=model is not None)

    def _hand_back_state(self, message: Message, states: ClientStates) -> None:
        """Give a client what its last accepted reply asked to keep, so that it may be a new process."""
        kept = states.get(self.roster.client_of(message.metadata.dst_node_id))
        if kept:
            message.content = RecordDict({**message.content, wire.STATE: ConfigRecord(kept)})

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
        return _known_names(dict(self.strategy.aggregate_evaluate(server_round, good) or {}))

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


def _known_names(metrics: Mapping[str, Any]) -> Row:
    """Without ids and counts, which Flower's own strategies average too, and without the record's own names."""
    return {
        k: v
        for k, v in metrics.items()
        if over_clients(k) != "none"
        and k not in NAMES_OF_A_ROUND
        and not k.startswith(PREFIXES_OF_A_ROUND)
        and not (k.startswith(PREFIXES_OF_NUMBERS) and isinstance(v, list))
    }


def _states_in(cohort: Cohort, roster: Roster) -> tuple[ClientStates, dict[int, str]]:
    """What the clients of the accepted replies keep, and why some of it is not kept."""
    states: ClientStates = {}
    refused: dict[int, str] = {}
    for reply in cohort.replies:
        record = reply.message.content.config_records.get(wire.STATE)
        if record is None:
            continue
        client = roster.client_of(reply.node_id)
        try:
            states[client] = _plain_state(record)
        except ReplyError as error:
            refused[client] = str(error)
    return states, refused


def _plain_state(record: ConfigRecord) -> dict[str, Any]:
    """A client's state, if a checkpoint can hold it."""
    state = dict(record)
    try:
        size = len(json.dumps(state))
    except (TypeError, ValueError) as error:
        raise ReplyError(f"its {wire.STATE} is not kept: {error}") from error
    if size > MAX_STATE:
        raise ReplyError(f"its {wire.STATE} is not kept: {size:,} bytes, at most {MAX_STATE:,} are")
    return state


def _note(clients: Sequence[Row], refused: Mapping[int, str]) -> None:
    """Say in the clients' rows what was not kept; the replies count all the same."""
    for row in clients:
        if row["client"] in refused:
            row["note"] = refused[row["client"]]
            log(WARNING, "round %d, client %d: %s", row["round"], row["client"], row["note"])


def _client_rows(
    server_round: int,
    messages: Sequence[Message],
    replies: Mapping[int, Message],
    cohort: Cohort,
    roster: Roster,
) -> list[Row]:
    """A row for each message that was sent: what came back, or why it is not used."""
    usable = {reply.node_id: reply for reply in cohort.replies}
    reasons = {item.node_id: item.reason for item in cohort.set_aside}
    rows = []
    for message in messages:
        node = message.metadata.dst_node_id
        row: Row = {"round": server_round, "client": roster.client_of(node)}
        row["bytes/down"] = _bytes(message)
        row["bytes/up"] = _bytes(replies[node]) if node in replies else 0
        if node in usable:
            own = (*row, *NAMES_OF_A_CLIENT, wire.CLIENT_ID)
            metrics = {k: v for k, v in usable[node].metrics.items() if k not in own}
            row |= {"status": "used", "norm": usable[node].length, **metrics}
        elif node in replies:
            row |= {"status": "set aside", "reason": reasons.get(node, "the reply names another node")}
        else:
            row |= {"status": "no reply", "reason": "no reply in time"}
        rows.append(row)
    return sorted(rows, key=lambda row: row["client"])


def _bytes(message: Message) -> int:
    """Bytes of the arrays in a message, their headers included; the few plain values are not counted."""
    if not message.has_content():
        return 0
    return sum(flower.records_bytes(record) for record in message.content.array_records.values())


def _why_empty(last: Round, empty: int, quorum: int) -> str:
    reasons = sorted({str(row["reason"]) for row in last.clients if "reason" in row})
    return (
        f"{empty} rounds one after the other had fewer than {quorum} usable replies, the last of them round "
        f"{last.number}: {'; '.join(reasons[:3]) or 'no client was reached'}"
    )
