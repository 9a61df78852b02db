"""The Flower Strategy around an aggregation rule: sampling, screening, ordering and packing, once for all rules.

A rule is a subclass with `rule()`, a pure function behind it, and a `State`. Wrappers are in `wrapper.py`.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import INFO, WARNING
from typing import Annotated, Any, ClassVar, NamedTuple, TypedDict

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from typing_extensions import Unpack

from fedstride import seeds, wire
from fedstride.arrays import Arrays, first_not_finite
from fedstride.errors import RunError, require
from fedstride.flower.logs import log
from fedstride.flower.strategies import AVERAGES_METRICS
from fedstride.placing import record_of
from fedstride.records import config_records
from fedstride.settings import Setting, check
from fedstride.varying import Varies

from .cohort import Accepted, Cohort, Expected
from .limits import Screening
from .needs import Needs, declared, limited
from .placed import Placed
from .reported import Number
from .reporting import to_metrics, without
from .screened import Screened
from .state import Stateless, pack, pack_learnt, unpack, unpack_learnt

Metrics = dict[str, Any]
"""Diagnostics of a round: plain numbers or lists of them, by `<rule>/<symbol>[/<layer>]`."""

MetricsFunction = Callable[[list[RecordDict], str], MetricRecord]

WEIGHTINGS = ("examples", "uniform")
Weighting = Annotated[str, Setting("p_k: examples (n_k / n) or uniform (1 / m)", options=WEIGHTINGS)]
"""The setting `weighting`, for the signatures of rules."""


NOT_FINITE = {"screening/not_finite": 1}
"""The metric of a round whose result was not used, because it contained NaN or infinity."""


class RoundResult(NamedTuple):
    """What a rule or a wrapper computes from a round's replies."""

    model: Arrays  # the model to return
    state: Any  # the state after the round
    metrics: Metrics


class Request(NamedTuple):
    """What a rule needs from the clients of a round in addition to training, for its client half (`half`)."""

    values: Mapping[str, Any] = {}  # plain values that are sent, by name
    arrays: Mapping[str, Arrays] = {}  # arrays that are sent in addition to the model, by name
    returns: Mapping[str, Arrays] = {}  # arrays that clients must return, by name: same names, shapes, dtypes
    numbers: Mapping[str, Number] = {}  # numbers that clients must report, by the metric's whole name


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
    """What every rule takes in addition to its own parameters; see `RuleStrategy`."""

    seed: int
    screening: Screening
    node_wait: float
    buffers: Sequence[str]


class RuleStrategy(Placed, Screened, FlowerFedAvg):
    """A Flower Strategy around one rule.

    In addition to FedAvg's arguments:

    - `weighting`: p_k by "examples" (n_k / n) or "uniform" (1 / m);
    - `seed`: from which the sampled nodes are drawn (over the sorted node ids; Flower's global
      generator is not used);
    - `screening`: which replies are used, and how many a round needs; see `Screening`;
    - `node_wait`: seconds that sampling waits for `min_available_nodes` before it raises RunError;
    - `buffers`: names or patterns (`*.positions`) of arrays that are buffers although neither their name nor
      their dtype shows it (docs/methods.md): what a model registers with torch's `register_buffer`.

    Round 1 resets the rule's state, so one object can be used in several `start` calls.
    Raises ConfigError (a ValueError) at construction for a value out of range.
    """

    State: ClassVar[type] = Stateless
    """The rule's state, a NamedTuple whose defaults are the state before round 1: arrays by name, or numbers."""

    half: ClassVar[str] = ""
    """The name of the rule's client half; empty if clients only train."""

    needs: ClassVar[Needs] = Needs.EACH
    """What result and state depend on of the clients' updates; each class must state it itself. See `Needs`."""

    def __init__(
        self,
        *,
        weighting: str = "examples",
        seed: int = 0,
        screening: Screening | None = None,
        node_wait: float = 600.0,
        buffers: Sequence[str] = (),
        **options: Unpack[FedAvgOptions],
    ) -> None:
        super().__init__(**options)
        require(weighting in WEIGHTINGS, "weighting", weighting, "'examples' or 'uniform'")
        require(0.0 <= self.fraction_train <= 1.0, "fraction_train", self.fraction_train, "in [0, 1]")
        require(0.0 <= self.fraction_evaluate <= 1.0, "fraction_evaluate", self.fraction_evaluate, "in [0, 1]")
        self.weighting = weighting
        self.seed = seed
        self.screening = screening or Screening()
        check(Screening, vars(self.screening))
        self.node_wait = node_wait
        self.buffers = tuple(buffers)
        self.sent: Arrays = {}
        self.requested = Request()
        self.forget_rounds()
        self.state = self.State()

    # -------------------------------------------------------- what a rule defines

    @abstractmethod
    def rule(self, sent: Arrays, cohort: Cohort, state: Any) -> RoundResult:
        """The new model and state, from the model that was sent, the valid replies and the state so far."""

    def client_request(self, sent: Arrays) -> Request:
        """What clients need for the rule's client half this round, and what they must return.

        Also called with an empty model before the first round, to learn the names of what is returned.
        """
        return Request()

    @property
    def varies(self) -> Mapping[str, Varies]:
        """What may change from round to round of the values that `client_request` sends, by its key in a message.

        A signed run fixes all others as they are in the first round.
        """
        return {}

    def check_model(self, model: Arrays) -> None:
        """Raises ConfigError for settings that do not fit the model; called before a run."""

    def state_dict(self) -> dict[str, Any]:
        """The state after the last round, as a flat dict of numpy arrays, numbers and strings."""
        return pack(self.state) | pack_learnt(self.learnt)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, exactly."""
        self.state = unpack(self.State, state)
        self.learnt = unpack_learnt(state)

    @property
    def expected(self) -> Expected:
        """What this round's replies must contain in addition to the model."""
        return expected_of(self.half, self.requested)

    @property
    def next_model(self) -> Arrays | None:
        """The model that the next round sends, if the rule sends another model than it returns; else None.

        It is the field `next` of such a rule's state. A wrapper that changes the model that is sent replaces it
        here.
        """
        next_model: Arrays | None = getattr(self.state, "next", None)
        return next_model

    @next_model.setter
    def next_model(self, model: Arrays) -> None:
        if "next" not in self.State._fields:  # type: ignore[attr-defined]
            raise AttributeError(f"{type(self).__name__} sends the model that it returns")
        self.state = self.state._replace(next=model)

    @property
    def summed_by(self) -> str | None:
        """`weighting`, if a sum is all that the rule declared."""
        return self.weighting if Needs.NOTHING < declared(self) < Needs.EACH else None

    # -------------------------------------------------------- the methods of a Flower strategy

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages with the model to train, for nodes drawn at random from (seed, round).

        Raises ConfigError for `buffers` that the model does not have.
        """
        if server_round == 1:
            self.state = self.State()
            self.forget_rounds()
        self.last_cohort = None  # the clients' models need no memory during the next training
        next_model = self.next_model
        record = arrays if next_model is None else record_of(next_model)
        self._send(record)
        self.requested = self.client_request(self.sent)
        if self.fraction_train == 0.0:
            return []
        nodes = self._sample(grid, "cohort", server_round, self.fraction_train, self.min_train_nodes)
        messages = self._messages(nodes, record, config, server_round, MessageType.TRAIN)
        return with_request(messages, self.half, self.requested, self.configrecord_key)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The rule's model and diagnostics.

        (None, metrics) if too few replies are valid, or if the rule's model is not finite; the state is then
        unchanged.
        """
        replies = self._followed(replies)
        cohort = self.screened(server_round, replies, self.sent, self.weighted_by_key, self.expected)
        metrics = cohort.counts()
        if len(cohort) < self.screening.quorum:
            return None, MetricRecord(metrics)
        given = limited(cohort, declared(self), type(self).__name__)
        model, state, diagnostics = self.rule(self.sent, given, self.state)
        if not is_usable(server_round, type(self).__name__, model, getattr(state, "next", None)):
            return None, MetricRecord(metrics | NOT_FINITE)
        self.state = state
        return record_of(model), to_metrics(self, self._client_metrics(cohort) | metrics | diagnostics)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages with the returned model, for nodes drawn from (seed, round)."""
        if self.fraction_evaluate == 0.0:
            return []
        nodes = self._sample(grid, "evaluate", server_round, self.fraction_evaluate, self.min_evaluate_nodes)
        return self._messages(nodes, arrays, config, server_round, MessageType.EVALUATE)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Flower's aggregation, of the valid replies."""
        cohort = self.screened_metrics(server_round, replies, self.weighted_by_key)
        metrics = super().aggregate_evaluate(server_round, Accepted(cohort))
        return None if metrics is None else without(metrics, cohort.uncounted)

    def summary(self) -> None:
        """Log the rule and its settings."""
        log(INFO, "\t├──> %s (%s)", type(self).__name__, self.weighting)
        super().summary()

    # -------------------------------------------------------- helpers

    def _client_metrics(self, cohort: Cohort) -> Metrics:
        if self.train_metrics_aggr_fn is not AVERAGES_METRICS:
            contents = [message.content for message in Accepted(cohort)]
            return dict(self.train_metrics_aggr_fn(contents, self.weighted_by_key))
        return cohort.metrics()

    def _messages(
        self, nodes: list[int], record: ArrayRecord, config: ConfigRecord, server_round: int, kind: str
    ) -> list[Message]:
        with_round = ConfigRecord({**config, wire.SERVER_ROUND: server_round})
        content = RecordDict({self.arrayrecord_key: record, self.configrecord_key: with_round})
        return [
            Message(content=content, message_type=kind, dst_node_id=node, group_id=str(server_round))
            for node in nodes
        ]

    def _sample(self, grid: Grid, purpose: str, server_round: int, fraction: float, least: int) -> list[int]:
        """Node ids drawn at random without replacement, sorted."""
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


def expected_of(half: str, request: Request) -> Expected:
    """What replies must contain in addition to the model, for a request of this client half."""
    returns = {wire.of_half(half, name): arrays for name, arrays in request.returns.items()}
    return Expected((half,), returns, request.numbers) if half else Expected()


def with_request(messages: Iterable[Message], half: str, request: Request, config_key: str) -> list[Message]:
    """The messages with a rule's request to its client half: the half's name, its values and its arrays.

    Contents are copied first, since Flower's strategies share one content among all messages.
    """
    listed = list(messages)
    if not half or not listed:
        return listed
    values = {wire.of_half(half, name): value for name, value in request.values.items()}
    arrays = {wire.of_half(half, name): record_of(each) for name, each in request.arrays.items()}
    for message in listed:
        config = config_records(message.content).get(config_key, ConfigRecord())
        halves = [*config.get(wire.HALVES, []), half]  # type: ignore[misc]
        extended = ConfigRecord({**config, wire.HALVES: halves, **values})
        message.content = RecordDict({**message.content, config_key: extended, **arrays})
    return listed


def is_usable(server_round: int, name: str, *models: Arrays | None) -> bool:
    """Whether all values of the models that a strategy computed are finite; logs the first array that is not.

    A round with another result is void: a model that is not finite must never replace one that is.
    """
    for model in models:
        found = first_not_finite(model or {})
        if found is not None:
            log(
                WARNING,
                "round %d: %s computed a model in which %r contains NaN or infinity; the round changes nothing",
                server_round,
                name,
                found,
            )
            return False
    return True
