"""The Strategy around a rule: sampling, screening, ordering, packing; what no rule should repeat.

Knows Flower's five verbs and how a rule is asked; does not know any rule. A rule is a subclass with
`rule()`, a pure function behind it, and its state in `state_dict`. Wrappers are in `wrapper.py`.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from logging import INFO, WARNING
from typing import Any, TypedDict

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from typing_extensions import Unpack

from fedstride import seeds, wire
from fedstride.arrays import Arrays, to_record, views
from fedstride.errors import RunError, require
from fedstride.flower import AVERAGES_METRICS, log

from .screening import SCREEN_FACTOR, Accepted, Cohort, screen, screen_metrics

Metrics = dict[str, Any]
"""Diagnostics of a round: plain numbers or lists of them, by `<rule>/<symbol>[/<layer>]`."""

MetricsFunction = Callable[[list[RecordDict], str], MetricRecord]

WEIGHTINGS = ("examples", "uniform")


class FedAvgOptions(TypedDict, total=False):
    """FedAvg's usual arguments, with Flower's names, meanings and defaults."""

    fraction_train: float
    fraction_evaluate: float
    min_train_nodes: int
    min_evaluate_nodes: int
    min_available_nodes: int
    weighted_by_key: str
    arrayrecord_key: str
    configrecord_key: str
    train_metrics_aggr_fn: MetricsFunction | None
    evaluate_metrics_aggr_fn: MetricsFunction | None


class RuleOptions(FedAvgOptions, total=False):
    """What every rule takes beside its own parameters; see `RuleStrategy`."""

    weighting: str
    seed: int
    quorum: int
    screen_factor: float
    node_wait: float


class RuleStrategy(FlowerFedAvg):
    """A Flower Strategy around one rule.

    Beside FedAvg's usual arguments:

    - `weighting`: p_k by "examples" (n_k / n) or "uniform" (1 / m);
    - `seed`: from which the sampled nodes are drawn (over the sorted node ids; Flower's global
      generator is not used);
    - `quorum`: usable replies (>= 1) below which a round changes neither weights nor state;
    - `screen_factor`: see `screening.screen`;
    - `node_wait`: seconds that sampling waits for `min_available_nodes` before it raises RunError.

    A round numbered 1 starts the rule's state afresh, so one object can serve several `start` calls.
    Raises ConfigError (a ValueError) at construction for a value out of range.
    """

    sees_only_the_mean: bool = False
    """Whether the result, and all state, depend on the updates through their mean alone."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        say_for_themselves(cls, "sees_only_the_mean")

    def __init__(
        self,
        *,
        weighting: str = "examples",
        seed: int = 0,
        quorum: int = 1,
        screen_factor: float = SCREEN_FACTOR,
        node_wait: float = 600.0,
        **options: Unpack[FedAvgOptions],
    ) -> None:
        super().__init__(**options)
        require(weighting in WEIGHTINGS, "weighting", weighting, "'examples' or 'uniform'")
        require(0.0 <= self.fraction_train <= 1.0, "fraction_train", self.fraction_train, "in [0, 1]")
        require(0.0 <= self.fraction_evaluate <= 1.0, "fraction_evaluate", self.fraction_evaluate, "in [0, 1]")
        require(quorum >= 1, "quorum", quorum, "at least 1")
        require(screen_factor > 1.0, "screen_factor", screen_factor, "greater than 1")
        self.weighting = weighting
        self.seed = seed
        self.quorum = quorum
        self.screen_factor = screen_factor
        self.node_wait = node_wait
        self.sent: Arrays = {}
        self.last_cohort: Cohort | None = None

    # -------------------------------------------------------- what a rule says

    @abstractmethod
    def rule(self, sent: Arrays, cohort: Cohort) -> tuple[Arrays, Metrics]:
        """The new model from the one sent and the usable replies, with diagnostics; updates the state."""

    def reset(self) -> None:
        """Forget all state, as before round 1."""

    def state_dict(self) -> dict[str, Any]:
        """All that survives a round, as a flat dict of numpy arrays and plain numbers or strings."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, exactly."""

    @property
    def next_model(self) -> Arrays | None:
        """The model that the next round sends, where the rule sends another than it returns; else None.

        A wrapper may read and replace it: this is the one way to change what is sent on.
        """
        return None

    @next_model.setter
    def next_model(self, model: Arrays) -> None:
        raise AttributeError(f"{type(self).__name__} sends the model that it returns")

    # -------------------------------------------------------- Flower's verbs

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages with the model to train, for nodes drawn from (seed, round)."""
        if server_round == 1:
            self.reset()
        following = self.next_model
        record = arrays if following is None else to_record(following)
        self.sent = views(record)
        if self.fraction_train == 0.0:
            return []
        nodes = self._sample(grid, "cohort", server_round, self.fraction_train, self.min_train_nodes)
        return self._messages(nodes, record, config, server_round, MessageType.TRAIN)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The rule's model and diagnostics; (None, metrics) where too few replies are usable."""
        cohort = screen(replies, self.sent, weighted_by_key=self.weighted_by_key, screen_factor=self.screen_factor)
        self.last_cohort = cohort
        if not isinstance(replies, Accepted):
            report_set_aside(server_round, cohort)
        metrics: Metrics = {"screen/set_aside": len(cohort.set_aside)}
        if len(cohort) < self.quorum:
            return None, MetricRecord(metrics)
        model, diagnostics = self.rule(self.sent, cohort)
        return to_record(model), MetricRecord(self._client_metrics(cohort) | metrics | diagnostics)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages with the returned model, for nodes drawn from (seed, round)."""
        if self.fraction_evaluate == 0.0:
            return []
        nodes = self._sample(grid, "evaluate", server_round, self.fraction_evaluate, self.min_evaluate_nodes)
        return self._messages(nodes, arrays, config, server_round, MessageType.EVALUATE)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Flower's, of the replies that can be used."""
        return super().aggregate_evaluate(server_round, screen_metrics(replies, self.weighted_by_key))

    def summary(self) -> None:
        """Log the rule and its settings."""
        log(INFO, "\t├──> %s (%s)", type(self).__name__, self.weighting)
        super().summary()

    # -------------------------------------------------------- parts

    def _client_metrics(self, cohort: Cohort) -> Metrics:
        if self.train_metrics_aggr_fn is not AVERAGES_METRICS:
            contents = [reply.message.content for reply in cohort.replies]
            return dict(self.train_metrics_aggr_fn(contents, self.weighted_by_key))
        return cohort.metrics()

    def _messages(
        self, nodes: list[int], record: ArrayRecord, config: ConfigRecord, server_round: int, kind: str
    ) -> list[Message]:
        told = ConfigRecord({**config, wire.SERVER_ROUND: server_round})
        content = RecordDict({self.arrayrecord_key: record, self.configrecord_key: told})
        return [
            Message(content=content, message_type=kind, dst_node_id=node, group_id=str(server_round))
            for node in nodes
        ]

    def _sample(self, grid: Grid, purpose: str, server_round: int, fraction: float, least: int) -> list[int]:
        """A draw without replacement over the sorted node ids, in their order."""
        nodes = self._wait_for_nodes(grid, max(self.min_available_nodes, least))
        size = min(len(nodes), max(int(len(nodes) * fraction + 1e-9), least))
        if size == len(nodes):
            return nodes
        rng = seeds.generator(self.seed, purpose, server_round)
        return sorted(nodes[i] for i in rng.choice(len(nodes), size, replace=False))

    def _wait_for_nodes(self, grid: Grid, count: int) -> list[int]:
        deadline = time.monotonic() + self.node_wait
        while len(nodes := sorted(grid.get_node_ids())) < count:
            if time.monotonic() >= deadline:
                raise RunError(
                    f"{len(nodes)} of at least {count} nodes are connected after {self.node_wait:g} seconds; "
                    "start more nodes, or lower min_available_nodes and min_train_nodes"
                )
            time.sleep(0.5)
        return nodes


def say_for_themselves(cls: type, *names: str) -> None:
    """Make claims about privacy False where a class does not repeat them: they need not hold for a derived one."""
    for name in names:
        if name not in vars(cls):
            setattr(cls, name, False)


def report_set_aside(server_round: int, cohort: Cohort) -> None:
    """Log each reply that is not used, with its reason."""
    for item in cohort.set_aside:
        log(WARNING, "round %d: the reply of node %d is set aside: %s", server_round, item.node_id, item.reason)


def take(state: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The entries of a flat state below `prefix/`, without it."""
    start = f"{prefix}/"
    return {key.removeprefix(start): value for key, value in state.items() if key.startswith(start)}


def put(prefix: str, state: Mapping[str, Any] | None) -> dict[str, Any]:
    """These arrays, numbers and strings as entries of a flat state below `prefix/`; none for None."""
    return {
        f"{prefix}/{name}": value if type(value) in (bool, int, float, str) else np.asarray(value)
        for name, value in (state or {}).items()
    }
