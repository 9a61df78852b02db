"""The loop over rounds, for any Flower strategy: through its four verbs only.

Knows the order of a round and when a run must end; does not know rules, files or screens. Flower's own
`Strategy.start` has no hooks, no early stop and no resume, and is not used.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from flwr.app import ArrayRecord, ConfigRecord, Message
from flwr.serverapp import Grid

from fedstride import flower, wire
from fedstride.errors import RunError
from fedstride.schema import Config
from server_app.exchange import CohortGrid, exchange
from server_app.roll_call import Roster
from strategies.norms import NormAnalysis
from strategies.screening import Cohort

Row = dict[str, Any]
"""Plain numbers, strings or lists of them, by metric name: what a record holds of a round or a client."""

Evaluate = Callable[[ArrayRecord], Mapping[str, float]]


@dataclass(frozen=True)
class Round:
    """A round that is over; round 0 is the initial model."""

    number: int
    arrays: ArrayRecord  # the model that stands now
    row: Row
    clients: list[Row] = field(default_factory=list)
    changed: bool = True  # False where too few replies were usable


class Observer(Protocol):
    """Who is told what happens; see `records.py`."""

    def replied(self, server_round: int, done: int, total: int) -> None:
        """A client of the round has answered, the `done`-th of `total`."""

    def round_done(self, done: Round) -> None:
        """A round is over."""


def run_rounds(
    grid: Grid,
    strategy: NormAnalysis,
    *,
    config: Config,
    roster: Roster,
    initial: ArrayRecord,
    told: ConfigRecord,
    evaluate: Evaluate,
    observers: Sequence[Observer],
) -> Iterator[Round]:
    """Train round after round; yields each when it is over and its observers know, round 0 first.

    Raises RunError after `max_empty_rounds` rounds one after the other that changed nothing.
    """
    yield _tell(observers, Round(0, initial, {"round": 0, **_timed_evaluation(evaluate, initial)}))
    arrays, empty = initial, 0
    for server_round in range(1, config.rounds + 1):
        done = _one_round(grid, strategy, server_round, arrays, config, roster, told, evaluate, observers)
        yield _tell(observers, done)
        arrays = done.arrays
        empty = 0 if done.changed else empty + 1
        if empty >= config.max_empty_rounds:
            reasons = sorted({str(row["reason"]) for row in done.clients if "reason" in row})
            raise RunError(
                f"{empty} rounds one after the other had fewer than {config.quorum} usable replies, the last of "
                f"them round {server_round}: {'; '.join(reasons[:3]) or 'no client was reached'}"
            )


def _one_round(
    grid: Grid,
    strategy: NormAnalysis,
    server_round: int,
    arrays: ArrayRecord,
    config: Config,
    roster: Roster,
    told: ConfigRecord,
    evaluate: Evaluate,
    observers: Sequence[Observer],
) -> Round:
    nodes = roster.cohort(config.cohort_size, seed=config.seed, server_round=server_round)
    cohort_grid = CohortGrid(grid, nodes)

    started = time.perf_counter()
    messages = list(strategy.configure_train(server_round, arrays, ConfigRecord(dict(told)), cohort_grid))

    def on_reply(done: int, total: int) -> None:
        for observer in observers:
            observer.replied(server_round, done, total)

    replies = exchange(grid, messages, timeout=config.timeout, on_reply=on_reply)
    trained = time.perf_counter()

    in_order = [replies[node] for node in nodes if node in replies]
    model, metrics = strategy.aggregate_train(server_round, in_order)
    cohort = strategy.last_cohort
    assert cohort is not None
    aggregated = time.perf_counter()

    standing = arrays if model is None else model
    row: Row = {"round": server_round, "clients": len(cohort), **_known_names(dict(metrics or {}))}
    row["screen/missing"] = len(messages) - len(replies)
    if _is_due(server_round, config):
        row |= _timed_evaluation(evaluate, standing)
        if config.evaluate_clients:
            row |= _federated_evaluation(grid, cohort_grid, strategy, server_round, standing, config, told)
    clients = _client_rows(server_round, messages, replies, cohort, roster)
    row["bytes/down"] = sum(client["bytes/down"] for client in clients)
    row["bytes/up"] = sum(client["bytes/up"] for client in clients)
    row["seconds/train"] = trained - started
    row["seconds/aggregate"] = aggregated - trained
    return Round(server_round, standing, row, clients, changed=model is not None)


def _is_due(server_round: int, config: Config) -> bool:
    every = config.evaluate_every
    return server_round == config.rounds or (every > 0 and server_round % every == 0)


def _timed_evaluation(evaluate: Evaluate, arrays: ArrayRecord) -> Row:
    started = time.perf_counter()
    return {**evaluate(arrays), "seconds/evaluate": time.perf_counter() - started}


def _federated_evaluation(
    grid: Grid,
    cohort_grid: CohortGrid,
    strategy: NormAnalysis,
    server_round: int,
    arrays: ArrayRecord,
    config: Config,
    told: ConfigRecord,
) -> Row:
    messages = list(strategy.configure_evaluate(server_round, arrays, ConfigRecord(dict(told)), cohort_grid))
    replies = exchange(grid, messages, timeout=config.timeout)
    nodes = cohort_grid.get_node_ids()
    good = [replies[node] for node in nodes if node in replies and not replies[node].has_error()]
    metrics = strategy.aggregate_evaluate(server_round, good)
    return _known_names(dict(metrics or {}))


def _known_names(metrics: Mapping[str, Any]) -> Row:
    """Without ids and counts, which Flower's own strategies average too, and without the clients' clocks."""
    return {k: v for k, v in metrics.items() if wire.combine(k) != "none" and k != wire.TRAIN_SECONDS}


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
            metrics = dict(usable[node].metrics)
            metrics.pop(wire.CLIENT_ID, None)
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


def _tell(observers: Sequence[Observer], done: Round) -> Round:
    for observer in observers:
        observer.round_done(done)
    return done
