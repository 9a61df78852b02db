"""The loop over rounds, for any Flower strategy.

It uses only the four public methods of a strategy: `configure_train`, `aggregate_train`, `configure_evaluate` and
`aggregate_evaluate`. Flower's own loop, `Strategy.start`, has no hooks, no early stop and no resume.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from flwr.app import ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.serverapp import Grid

from fedstride import wire
from fedstride.errors import RunError
from strategies.cohort import LEFT_OUT, Cohort
from strategies.norms import NormAnalysis

from .claims import Owner
from .config.schema import Config
from .exchange import CohortGrid, exchange
from .roll_call import Roster
from .rows import Row, absent_rows, client_rows, decision_figure, known_names
from .stopping import quorum_of
from .waiting import Waits

AcceptedRounds = Mapping[int, int]
"""The last round whose reply was accepted, by client id. A client loads the state that it saved in that round."""


@dataclass(frozen=True)
class Round:
    """A completed round. Round 0 is the initial model."""

    number: int
    arrays: ArrayRecord  # the global model after the round
    row: Row
    clients: list[Row] = field(default_factory=list)
    accepted: AcceptedRounds = field(default_factory=dict)
    owners: Mapping[int, Owner] = field(default_factory=dict)  # the node that each client id belongs to
    changed: bool = True  # False if there were too few valid replies, so the model did not change


class Observer(Protocol):
    """An object that is called during the run, as `Records` is."""

    def replied(self, server_round: int, done: int, total: int) -> None:
        """A client has replied; it is number `done` of `total` in this round."""

    def round_done(self, done: Round) -> None:
        """A round is over."""


@dataclass(frozen=True)
class Federation:
    """Executes the rounds of a run."""

    grid: Grid
    strategy: NormAnalysis
    config: Config
    roster: Roster
    client_config: ConfigRecord  # sent to every client
    evaluate: Callable[[ArrayRecord], Mapping[str, float]]
    observers: Sequence[Observer]
    waits: Waits
    oldest_round: Callable[[int], int | None] = lambda client: None  # see `Records.oldest_round`

    def rounds(self, start: Round | None, initial: ArrayRecord) -> Iterator[Round]:
        """Execute the rounds; yields each round after the observers were called.

        Begins with round 0 (the initial model), or with the round after `start`, the last round of a resumed run.
        Raises RunError after `max_empty_rounds` rounds in a row that did not change the model.
        """
        if start is None:
            start = Round(0, initial, {"round": 0, **self._evaluation(initial)})
            self._notify_round_done(start)
            yield start
        last, empty = start, 0
        for server_round in range(start.number + 1, self.config.rounds + 1):
            last = self._one_round(server_round, last)
            self._notify_round_done(last)
            yield last
            empty = 0 if last.changed else empty + 1
            if empty >= self.config.max_empty_rounds:
                raise RunError(_empty_rounds_reason(last, empty, self.config.screening.quorum))

    def _one_round(self, server_round: int, last: Round) -> Round:
        config = self.config
        self.roster.refresh(server_round)
        nodes = self.roster.cohort(server_round)
        cohort_grid = CohortGrid(self.grid, nodes)

        started = time.perf_counter()
        messages: list[Message] = []
        if nodes:  # without nodes, Flower's strategies would wait for some; `refresh` has already done that
            train_config = ConfigRecord(dict(self.client_config))
            messages += self.strategy.configure_train(server_round, last.arrays, train_config, cohort_grid)
        for message in messages:
            self._add_state_rounds(message, last.accepted)
        wait = self.waits.wait("train", self._clients_of(messages))
        replies = exchange(
            self.grid,
            messages,
            patience=wait,
            returns=self.strategy.expected.returns,
            on_reply=lambda done, total: self._notify_replied(server_round, done, total),
        )
        trained = time.perf_counter()
        self._set_client_ids(replies)

        in_order = [replies[node] for node in nodes if node in replies]
        model, metrics = self.strategy.aggregate_train(server_round, in_order)
        cohort = self.strategy.last_cohort
        assert cohort is not None
        used = {self.roster.client_of(reply.node_id) for reply in cohort.replies}
        wait.finished(used)
        mute = set(wait.mute)
        aggregated = time.perf_counter()

        current = last.arrays if model is None else model
        row: Row = {"round": server_round, "clients": len(cohort), **known_names(dict(metrics or {}))}
        row["screening/missing"] = len(messages) - len(replies)
        evaluation: Cohort | None = None
        if _is_due(server_round, config):
            row |= self._evaluation(current)
            answering = [node for node in nodes if node in replies]
            if config.evaluate_clients and answering:  # without nodes, Flower's strategies would wait for some
                grid = CohortGrid(self.grid, answering)
                figures, silent = self._federated_evaluation(grid, server_round, current, cohort)
                row |= figures
                mute |= silent
                evaluation = self.strategy.last_evaluation
        if evaluation is not None and evaluation.left_out:
            row[LEFT_OUT] = row.get(LEFT_OUT, 0) + evaluation.left_out_count
        quorum = quorum_of(config.best_quorum, len(messages), config.clients)
        row |= decision_figure(config.best, [evaluation, cohort] if evaluation else [cohort], quorum)
        clients = client_rows(server_round, messages, replies, cohort, self.roster, wait.reason, evaluation)
        clients += absent_rows(server_round, self.roster.left_out, self.roster.refused())
        self.roster.close(server_round, mute=mute, used=used)
        row["bytes/down"] = sum(client["bytes/down"] for client in clients)
        row["bytes/up"] = sum(client["bytes/up"] for client in clients)
        row["seconds/train"] = trained - started
        row["seconds/aggregate"] = aggregated - trained
        now = {} if model is None else dict.fromkeys(used, server_round)
        return Round(
            server_round,
            current,
            row,
            clients,
            accepted={**last.accepted, **now},
            owners=self.roster.owners,
            changed=model is not None,
        )

    def _clients_of(self, messages: Sequence[Message]) -> dict[int, int]:
        """The client id of each node that gets one of the messages."""
        nodes = [message.metadata.dst_node_id for message in messages]
        return {node: self.roster.client_of(node) for node in nodes}

    def _add_state_rounds(self, message: Message, accepted: AcceptedRounds) -> None:
        """Add two rounds to the message: that of the state to load, and that of the oldest state to keep."""
        client = self.roster.client_of(message.metadata.dst_node_id)
        load = accepted.get(client, 0)
        oldest = self.oldest_round(client)
        state_rounds = {wire.ACCEPTED: load, wire.OLDEST: load if oldest is None else min(load, oldest)}
        key = self.strategy.configrecord_key
        config = ConfigRecord({**message.content.config_records[key], **state_rounds})
        message.content = RecordDict({**message.content, key: config})

    def _set_client_ids(self, replies: Mapping[int, Message]) -> None:
        """Replace the client ids in the replies by those of the roll call: the ids in a reply are not trusted."""
        for node, reply in replies.items():
            client = self.roster.client_of(node)
            for record in reply.content.metric_records.values() if reply.has_content() else ():
                if isinstance(record.get(wire.CLIENT_ID, client), int):  # the screening rejects other types
                    record[wire.CLIENT_ID] = client

    def _limit_counts(self, replies: Mapping[int, Message], trained: Container[int]) -> None:
        """Replace numbers of examples above that of the roll call, for clients whose training was not used.

        The strategy limits those of the other clients, by their numbers in training.
        """
        key = self.strategy.weighted_by_key
        for node, reply in replies.items():
            known = self.roster.facts.get(self.roster.client_of(node), {}).get(wire.NUM_EXAMPLES)
            if node in trained or not isinstance(known, int) or known < 1 or not reply.has_content():
                continue
            for record in reply.content.metric_records.values():
                count = record.get(key)
                if isinstance(count, (int, float)) and count > known:
                    record[key] = known

    def _evaluation(self, arrays: ArrayRecord) -> Row:
        started = time.perf_counter()
        return {**self.evaluate(arrays), "seconds/evaluate": time.perf_counter() - started}

    def _federated_evaluation(
        self, grid: CohortGrid, server_round: int, arrays: ArrayRecord, trained: Cohort
    ) -> tuple[Row, set[int]]:
        """The metrics of the evaluation on the clients of `grid`, and the clients that did not reply.

        `trained`: the valid replies of this round's training; only the times of these clients are learnt from.
        """
        nodes = grid.get_node_ids()
        config = ConfigRecord(dict(self.client_config))
        messages = list(self.strategy.configure_evaluate(server_round, arrays, config, grid))
        wait = self.waits.wait("evaluate", self._clients_of(messages))
        replies = exchange(self.grid, messages, patience=wait)
        wait.finished({self.roster.client_of(reply.node_id) for reply in trained.replies})
        self._set_client_ids(replies)
        self._limit_counts(replies, {reply.node_id for reply in trained.replies})
        good = [replies[node] for node in nodes if node in replies and not replies[node].has_error()]
        figures = known_names(dict(self.strategy.aggregate_evaluate(server_round, good) or {}))
        return figures, set(wait.mute)

    def _notify_round_done(self, done: Round) -> None:
        for observer in self.observers:
            observer.round_done(done)

    def _notify_replied(self, server_round: int, done: int, total: int) -> None:
        for observer in self.observers:
            observer.replied(server_round, done, total)


def _is_due(server_round: int, config: Config) -> bool:
    every = config.evaluate_every
    return server_round == config.rounds or (every > 0 and server_round % every == 0)


def _empty_rounds_reason(last: Round, empty: int, quorum: int) -> str:
    if last.row.get("screening/not_finite"):
        return (
            f"{empty} rounds in a row changed nothing; in round {last.number} the model that was computed "
            "contains NaN or infinity: use a smaller client.lr or server learning rate"
        )
    reasons = sorted({str(row["reason"]) for row in last.clients if "reason" in row})
    return (
        f"{empty} rounds in a row had fewer than {quorum} valid replies (screening.quorum); "
        f"in round {last.number}: {'; '.join(reasons[:3]) or 'no client was connected'}"
    )
