"""A rule of ours as the core of a strategy: what a rule defines, and how it asks a sample of the nodes.

A rule is a subclass with `rule()`, a pure function behind it, and a `State`. It is a Flower Strategy by itself,
with the shell of `flower_strategy.py`; wrappers around it are in `wrapper.py`.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from inspect import Parameter, signature
from logging import INFO
from typing import Annotated, Any, Literal, TypedDict, get_args

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from typing_extensions import Unpack, override

from fedstride import seeds
from fedstride.arrays.named import Arrays
from fedstride.arrays.on_device import record_of
from fedstride.errors import RunError, nearest, require
from fedstride.flower.logs import log
from fedstride.flower.strategy_internals import AVERAGES_METRICS
from fedstride.messages import wire
from fedstride.settings import Setting, check

from ..replies.cohort import Cohort
from ..replies.declared_needs import Needs, declared, limited
from ..replies.reply_messages import messages_of
from ..replies.screening_settings import Screening
from .flower_strategy import Shell
from .rule_state import check_state
from .stack import Computed, Core, RoundMessages, RoundResult, Stack

MetricsFunction = Callable[[list[RecordDict], str], MetricRecord]

By = Literal["examples", "uniform"]
WEIGHTINGS: tuple[By, ...] = get_args(By)
Weighting = Annotated[By, Setting("p_k: examples (n_k / n) or uniform (1 / m)")]
"""The setting `weighting`, for the signatures of rules."""

Recover = Annotated[
    bool,
    Setting(
        "the server keeps the state of each client, and recovers from one that lied or lost it; costs memory of N "
        "models, and each of a client's messages has its state; false: the paper's form"
    ),
]
"""The setting `recover`, for the signatures of rules whose server keeps a mean of the clients' states."""


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


def settings_in(part: type) -> list[str]:
    """The names of the settings that this class of a rule or wrapper has in its own signature."""
    parameters = signature(part).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind is not Parameter.VAR_KEYWORD]


def check_options(part: type, given: Iterable[str], inherited: Iterable[str]) -> None:
    """Raises TypeError, with a suggestion, for options that are not `inherited` ones of this rule or wrapper.

    Python would name the method of the parent class that does not know them.
    """
    wrong = sorted(set(given) - set(inherited))
    if not wrong:
        return
    known = sorted({*settings_in(part), *inherited})
    close = nearest(wrong[0], known, limit=1)
    then = f"did you mean {close[0]!r}?" if close else f"it has {', '.join(known)}"
    raise TypeError(f"{part.__name__} has no setting {wrong[0]!r}; {then}")


class RuleStrategy(Core, Shell, FlowerFedAvg):
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

    def __init__(
        self,
        *,
        weighting: By = "examples",
        seed: int = 0,
        screening: Screening | None = None,
        node_wait: float = 600.0,
        buffers: Sequence[str] = (),
        **options: Unpack[FedAvgOptions],
    ) -> None:
        check_options(type(self), options, RuleOptions.__annotations__)
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
        self._enclose(Stack([], self))

    @abstractmethod
    def rule(self, sent: Arrays, cohort: Cohort, state: Any) -> RoundResult:
        """The new model and state, from the model that was sent, the valid replies and the state so far."""

    @property
    @override
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
            raise AttributeError(f"{self.part_name} sends the model that it returns")
        self.state = self.state._replace(next=model)

    def summary(self) -> None:
        """Log the rule and its settings."""
        log(INFO, "\t├──> %s (%s)", self.part_name, self.weighting)
        FlowerFedAvg.summary(self)

    # -------------------------------------------------------- as the core of a strategy

    @override
    def ask_clients(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> RoundMessages:
        """Messages for nodes drawn at random from (seed, round)."""
        record = arrays if self.next_model is None else record_of(self.next_model)
        if self.fraction_train == 0.0:
            return RoundMessages(record, [])
        nodes = self._sample(grid, "cohort", server_round, self.fraction_train, self.min_train_nodes)
        return RoundMessages(record, self._messages(nodes, record, config, server_round, MessageType.TRAIN))

    @override
    def aggregate_cohort(self, server_round: int, sent: Arrays, cohort: Cohort) -> Computed:
        """See `rule`."""
        given = limited(cohort, declared(self), self.part_name)
        model, state, diagnostics = self.rule(sent, given, self.state)
        check_state(state, self.part_name)
        self.state = state
        if self.train_metrics_aggr_fn is AVERAGES_METRICS:
            return Computed(model, None, diagnostics)
        contents = [message.content for message in messages_of(cohort, as_reported=True)]
        return Computed(model, self.train_metrics_aggr_fn(contents, self.weighted_by_key), diagnostics)

    @property
    @override
    def summed_by(self) -> str | None:
        return self.weighting if Needs.NOTHING < declared(self) < Needs.EACH else None

    @override
    def ask_for_evaluation(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Messages with the returned model, for nodes drawn from (seed, round)."""
        if self.fraction_evaluate == 0.0:
            return []
        nodes = self._sample(grid, "evaluate", server_round, self.fraction_evaluate, self.min_evaluate_nodes)
        return self._messages(nodes, arrays, config, server_round, MessageType.EVALUATE)

    @override
    def aggregate_evaluation(self, server_round: int, cohort: Cohort) -> MetricRecord | None:
        """Flower's aggregation; a function of the user gets what the valid clients reported."""
        if not self.averages_evaluations:
            contents = [message.content for message in messages_of(cohort, as_reported=True)]
            return self.evaluate_metrics_aggr_fn(contents, self.weighted_by_key) if contents else None
        return FlowerFedAvg.aggregate_evaluate(self, server_round, messages_of(cohort))

    @property
    @override
    def averages_evaluations(self) -> bool:
        return self.evaluate_metrics_aggr_fn is AVERAGES_METRICS

    # -------------------------------------------------------- messages

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


class Recovering(RuleStrategy):
    """A rule whose server keeps a mean of the clients' states, with the setting `recover`; see `client_states.py`.

    A rule declares `needs = Recovering.needs`, since what a parent class declares does not count.
    """

    recover: bool
    clients_keep_state = True

    @property
    def needs(self) -> Needs:  # type: ignore[override]  # it depends on a setting
        """With `recover`, what each client sends; else the mean."""
        return Needs.EACH if self.recover else Needs.MEAN

    @property
    @override
    def summed_by(self) -> str:
        """Of the updates themselves only the mean is used, in any case."""
        return self.weighting
