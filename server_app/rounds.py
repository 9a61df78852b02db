"""The loop over rounds, for any Flower strategy.

It calls the four public methods of the outermost wrapper, NormAnalysis: `configure_train`, `aggregate_train`,
`configure_evaluate` and `aggregate_evaluate`, and reads the replies that it has screened. Flower's own loop,
`Strategy.start`, has no hooks, no early stop and no resume.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.serverapp import Grid

from fedstride.arrays.named import Arrays
from fedstride.errors import RunError
from fedstride.messages import wire
from fedstride.messages.records import config_records
from fedstride.messages.varying_values import Varies
from fedstride.tasks.spec import Statistics
from strategies.norm_analysis import NormAnalysis
from strategies.replies.cohort import LEFT_OUT, Cohort

from .config.schema import Config
from .evaluation import membership
from .evaluation.ccvr import CCVR
from .evaluation.second_model import Second
from .exchange.client_ids import Owner
from .exchange.corrected_replies import most_measured, set_client_ids
from .exchange.frozen_arrays import Delivery
from .exchange.roster import Roster
from .exchange.sending import CohortGrid, exchange
from .exchange.timeouts import Wait, Waits
from .records.row_values import Row
from .reports.client_rows import empty_rounds_reason, rows_of_clients, rows_of_measuring
from .reports.progress import Progress
from .reports.round_row import bytes_in, decision_figure, known_names, with_names
from .reports.spread import spread
from .stopping import quorum_of

Evaluate = Callable[[ArrayRecord, int], Mapping[str, float | list[float]]]
"""The figures of a model at the server, by name."""

AcceptedRounds = Mapping[int, int]
"""The last round whose reply was accepted, by client id. A client loads the state that it saved in that round."""


@dataclass(frozen=True)
class Round:
    """A completed round. Round 0 is the initial model."""

    number: int
    arrays: ArrayRecord  # the global model after the round, without what is frozen
    row: Row
    clients: list[Row] = field(default_factory=list)
    accepted: AcceptedRounds = field(default_factory=dict)
    owners: Mapping[int, Owner] = field(default_factory=dict)  # the node that each client id belongs to
    statistics: Statistics = field(default_factory=dict)  # of the clients' examples, if the run computed them
    changed: bool = True  # False if there were too few valid replies, so the model did not change


class Observer(Protocol):
    """An object that is called during the run, as `Records` is."""

    def replied(self, server_round: int, done: int, total: int) -> None:
        """A client has replied; it is number `done` of `total` in this round."""

    def round_done(self, done: Round) -> None:
        """A round is over."""


@dataclass(frozen=True)
class _Asked:
    """The messages of a round's training or evaluation, the replies by node, and the wait for them."""

    messages: list[Message]
    replies: dict[int, Message]
    wait: Wait


def varies(rounds: int) -> dict[str, Varies]:
    """What the loop itself says in a message for training, which is another value from round to round."""
    return {
        wire.SERVER_ROUND: Varies("int", min(1, rounds), rounds, rises=True),
        wire.ACCEPTED: Varies("int", 0, rounds, rises=True),
        wire.OLDEST: Varies("int", 0, rounds),
    }


@dataclass(frozen=True)
class Federation:
    """Executes the rounds of a run."""

    grid: Grid
    strategy: NormAnalysis
    config: Config
    roster: Roster
    delivery: Delivery  # of the arrays that are not trained
    client_config: ConfigRecord  # sent to every client
    evaluate: Evaluate
    observers: Sequence[Observer]
    waits: Waits
    progress: Progress
    statistics: Statistics = field(default_factory=dict)
    calibration: CCVR | None = None
    second: Second | None = None  # a model that is measured beside the initial one
    asks_membership: bool = False  # whether the last evaluation asks for a membership test
    oldest_round: Callable[[int], int | None] = lambda client: None  # see `Records.oldest_round`
    ends: Callable[[Row], bool] = lambda row: False  # whether a round with this row is the last: it is measured

    def rounds(self, start: Round | None, initial: ArrayRecord) -> Iterator[Round]:
        """Execute the rounds; yields each round after the observers were called.

        Begins with round 0 (the initial model), or with the round after `start`, the last round of a resumed run.
        Raises RunError after `max_empty_rounds` rounds in a row that did not change the model.
        """
        if start is None:
            start = self._start(initial)
            self._notify_round_done(start)
            yield start
        last, empty = start, 0
        for server_round in range(start.number + 1, self.config.rounds + 1):
            last = self._one_round(server_round, last)
            self._notify_round_done(last)
            yield last
            empty = 0 if last.changed else empty + 1
            if empty >= self.config.max_empty_rounds:
                raise RunError(empty_rounds_reason(last.row, last.clients, empty, self.config.screening.quorum))

    def _start(self, initial: ArrayRecord) -> Round:
        """Round 0: the initial model. If it is not trained, all clients measure it too."""
        row: Row = {"round": 0, **self._evaluation(initial, 0)}
        if self.config.rounds or not self.config.evaluate_clients:
            return Round(0, initial, row, statistics=self.statistics)
        self.roster.refresh(0)
        nodes = self._measuring(self.roster.everyone(0))
        if not nodes:
            raise RunError("no client can measure the model: each holds out fewer rows than its site speaks of")
        figures, asked = self._federated_evaluation(CohortGrid(self.grid, nodes), 0, initial, Cohort(()))
        evaluation = self.strategy.last_evaluation
        assert evaluation is not None
        clients = rows_of_measuring(asked.messages, asked.replies, evaluation, self.roster, asked.wait.reason)
        row |= {"clients": len(evaluation), **figures, **spread(evaluation)}
        row |= {key: sum(client[key] for client in clients) for key in ("bytes/down", "bytes/up")}
        return Round(0, initial, row, clients, owners=self.roster.owners, statistics=self.statistics)

    def _one_round(self, server_round: int, last: Round) -> Round:
        self.roster.refresh(server_round)
        nodes = self.roster.cohort(server_round)
        started = time.perf_counter()
        asked = self._train(server_round, last, nodes)
        trained = time.perf_counter()
        model, metrics = self.strategy.aggregate_train(server_round, list(asked.replies.values()))
        cohort = self.strategy.last_cohort
        assert cohort is not None
        used = {self.roster.client_of(reply.node_id) for reply in cohort.replies}
        asked.wait.finished(used)
        seconds = {"seconds/train": trained - started, "seconds/aggregate": time.perf_counter() - trained}

        current = last.arrays if model is None else model
        row: Row = {"round": server_round, "clients": len(cohort), **known_names(dict(metrics or {}))}
        row = with_names(row, self.roster.label)
        figures: Row = {}
        evaluation: Cohort | None = None
        silent: set[int] = set()
        if is_due(server_round, self.config) or self.ends(row | self._decision(len(asked.messages), cohort, None)):
            figures, evaluation, silent = self._evaluations(server_round, current, cohort, list(asked.replies))
        clients = rows_of_clients(
            server_round, asked.messages, asked.replies, cohort, self.roster, asked.wait.reason, evaluation
        )
        self.roster.close(server_round, mute={*asked.wait.mute, *silent}, used=used)
        row["screening/missing"] = len(asked.messages) - len(asked.replies)
        row |= figures
        if evaluation is not None and evaluation.left_out:
            row[LEFT_OUT] = row.get(LEFT_OUT, 0) + evaluation.left_out_count
        row |= self._calibrated(server_round, current)
        row |= self._decision(len(asked.messages), cohort, evaluation)
        row |= {key: sum(client[key] for client in clients) for key in ("bytes/down", "bytes/up")}
        self.progress.closed(clients, row.get(self.config.headline))
        return Round(
            server_round,
            current,
            row | seconds,
            clients,
            accepted={**last.accepted, **({} if model is None else self._taken_in(server_round))},
            owners=self.roster.owners,
            statistics=self.statistics,
            changed=model is not None,
        )

    def _taken_in(self, server_round: int) -> dict[int, int]:
        """The round, for each client whose reply the rule saw; a client keeps its state of such a round alone."""
        admitted = self.strategy.last_admitted
        assert admitted is not None
        return {self.roster.client_of(reply.node_id): server_round for reply in admitted.replies}

    def _train(self, server_round: int, last: Round, nodes: Sequence[int]) -> _Asked:
        """Ask the nodes to train; their replies, in the order of `nodes`."""
        messages: list[Message] = []
        if nodes:  # without nodes, Flower's strategies would wait for some; `refresh` has already done that
            config = ConfigRecord(dict(self.client_config))
            grid = CohortGrid(self.grid, list(nodes))
            messages += self.strategy.configure_train(server_round, last.arrays, config, grid)
        for message in messages:
            self._add_state_rounds(message, last.accepted)
        self.delivery.add(messages, self.roster)
        clients = self._clients_of(messages)
        wait = self.waits.wait("train", clients)
        self.progress.asked(server_round, [self.roster.label(client) for client in sorted(clients.values())])

        def on_replies(nodes: Sequence[int], done: int, total: int) -> None:
            self.progress.answered([self.roster.label(clients[node]) for node in nodes])
            for number in range(done - len(nodes) + 1, done + 1):
                self._notify_replied(server_round, number, total)

        returns = self.strategy.expected.returns
        replies = self._exchanged(messages, wait, returns=returns, on_replies=on_replies)
        self.delivery.note(messages, replies, self.roster)
        set_client_ids(replies, self.roster)
        return _Asked(messages, {node: replies[node] for node in nodes if node in replies}, wait)

    def _exchanged(self, messages: Sequence[Message], wait: Wait, **options: Any) -> dict[int, Message]:
        """The replies to these messages, by node."""
        return exchange(self.grid, messages, patience=wait, unpacking=self.roster.unpacking, **options)

    def _evaluations(
        self, server_round: int, model: ArrayRecord, trained: Cohort, answering: Sequence[int]
    ) -> tuple[Row, Cohort | None, set[int]]:
        """The figures of the server's and the clients' evaluation.

        And the valid replies of the clients, and the clients that did not reply.
        """
        figures = self._evaluation(model, server_round)
        if not (self.config.evaluate_clients and answering):  # as in `_train`
            return figures, None, set()
        if not (nodes := self._measuring(answering)):
            return figures, Cohort(()), set()
        grid = CohortGrid(self.grid, nodes)
        more, asked = self._federated_evaluation(grid, server_round, model, trained)
        evaluation = self.strategy.last_evaluation
        return figures | more | (spread(evaluation) if evaluation else {}), evaluation, set(asked.wait.mute)

    def _measuring(self, nodes: Sequence[int]) -> list[int]:
        """Those of these nodes that hold out enough rows to be asked for figures."""
        few = set(self.roster.few_held)
        return [node for node in nodes if self.roster.client_of(node) not in few]

    def _calibrated(self, server_round: int, model: ArrayRecord) -> Row:
        """The figures of a calibrated copy of the model, if one is due in this round."""
        if self.calibration is None or not self.calibration.is_due(server_round):
            return {}
        name, bytes_of_arrays = self.config.calibration.name, 0

        def ask(values: Mapping[str, Any], returns: Mapping[str, Arrays]) -> dict[int, Message]:
            nonlocal bytes_of_arrays
            config = ConfigRecord({**self.client_config, wire.SERVER_ROUND: server_round, **values})
            messages = [
                Message(
                    RecordDict({wire.ARRAYS: model, wire.CONFIG: config}),
                    message_type=MessageType.QUERY,
                    dst_node_id=node,
                )
                for node in self.roster.everyone(server_round)
            ]
            self.delivery.add(messages, self.roster)
            wait = self.waits.wait("calibrate", self._clients_of(messages))
            replies = self._exchanged(messages, wait, returns=returns)
            bytes_of_arrays += sum(bytes_in(message) for message in (*messages, *replies.values()))
            by_client = {self.roster.client_of(node): reply for node, reply in replies.items()}
            wait.finished({client for client, reply in by_client.items() if not reply.has_error()})
            return by_client

        examples = {
            client: count
            for client, facts in self.roster.facts.items()
            if isinstance(count := facts.get(wire.NUM_EXAMPLES), int)
        }
        copy = self.calibration(server_round, model, examples, ask, self.roster.label)
        figures = {
            f"{name}/{key.removeprefix('test/')}": value
            for key, value in self.evaluate(copy.arrays, server_round).items()
        }
        return {**figures, f"{name}/clients": copy.clients, f"{name}/bytes": bytes_of_arrays}

    def _decision(self, asked: int, trained: Cohort, evaluation: Cohort | None) -> Row:
        """The median that decides on `best`, `target` and `patience`, if `best` is a metric of clients."""
        quorum = quorum_of(self.config.best_quorum, asked, self.config.clients)
        return decision_figure(self.config.headline, [evaluation, trained] if evaluation else [trained], quorum)

    def _clients_of(self, messages: Sequence[Message]) -> dict[int, int]:
        """The client id of each node that gets one of the messages."""
        return {(node := message.metadata.dst_node_id): self.roster.client_of(node) for message in messages}

    def _add_state_rounds(self, message: Message, accepted: AcceptedRounds) -> None:
        """Add two rounds to the message: that of the state to load, and that of the oldest state to keep."""
        client = self.roster.client_of(message.metadata.dst_node_id)
        load = accepted.get(client, 0)
        oldest = self.oldest_round(client)
        state_rounds = {wire.ACCEPTED: load, wire.OLDEST: load if oldest is None else min(load, oldest)}
        key = self.strategy.configrecord_key
        config = config_records(message.content)[key].copy()  # a new record would check all values again
        config.update(state_rounds)
        message.content = RecordDict({**message.content, key: config})

    def _evaluation(self, arrays: ArrayRecord, server_round: int) -> Row:
        started = time.perf_counter()
        return {**self.evaluate(arrays, server_round), "seconds/evaluate": time.perf_counter() - started}

    def _federated_evaluation(
        self, grid: CohortGrid, server_round: int, arrays: ArrayRecord, trained: Cohort
    ) -> tuple[Row, _Asked]:
        """The metrics of the evaluation on the clients of `grid`, and what was asked.

        `trained`: the valid replies of this round's training; only the times of these clients are learnt from.
        """
        nodes = grid.get_node_ids()
        config = ConfigRecord(dict(self.client_config))
        messages = list(self.strategy.configure_evaluate(server_round, arrays, config, grid))
        if self.second is not None:
            self.second.add(messages, self.strategy.configrecord_key)
        asks = self.asks_membership and 0 < server_round == self.config.rounds
        tested = membership.ask(messages, self.roster, self.strategy.configrecord_key) if asks else None
        self.delivery.add(messages, self.roster)
        wait = self.waits.wait("evaluate", self._clients_of(messages))
        replies = self._exchanged(messages, wait)
        self.delivery.note(messages, replies, self.roster)
        wait.finished({self.roster.client_of(reply.node_id) for reply in trained.replies})
        set_client_ids(replies, self.roster)
        membership.keep_of(tested, replies)
        self.strategy.most_examples = most_measured(self.roster.facts, self.config.holdout or 0.0)
        good = [replies[node] for node in nodes if node in replies and not replies[node].has_error()]
        figures = known_names(dict(self.strategy.aggregate_evaluate(server_round, good) or {}))
        return figures, _Asked(messages, replies, wait)

    def _notify_round_done(self, done: Round) -> None:
        for observer in self.observers:
            observer.round_done(done)

    def _notify_replied(self, server_round: int, done: int, total: int) -> None:
        for observer in self.observers:
            observer.replied(server_round, done, total)


def is_due(server_round: int, config: Config) -> bool:
    """Whether a round ends with an evaluation."""
    every = config.evaluate_every
    return server_round == config.rounds or (every > 0 and server_round % every == 0)
