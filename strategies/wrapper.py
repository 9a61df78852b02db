"""A strategy around another one, Flower's own or ours.

A wrapper is a subclass with `act()`, which sees the model that was sent, the valid replies and the inner
strategy's result. The class here screens, orders and forwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from logging import WARNING
from typing import Any, ClassVar

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from flwr.serverapp.strategy import Strategy

from fedstride import wire
from fedstride.arrays import Arrays, Layout, is_boolean, like
from fedstride.errors import RunError, require
from fedstride.flower.logs import log
from fedstride.flower.strategies import (
    ADAPTIVE,
    AggregationError,
    builtin_state,
    chain,
    forget_current_arrays,
    load_builtin_state,
)
from fedstride.metrics import over_clients
from fedstride.placing import device_in, placed, record_of, values
from fedstride.records import array_records
from fedstride.settings import check
from fedstride.varying import Varies

from .base import (
    NOT_FINITE,
    Metrics,
    Request,
    RoundResult,
    RuleStrategy,
    expected_of,
    is_usable,
    with_request,
)
from .cohort import Accepted, Cohort, Expected
from .fedavg import FedAvg
from .limits import Screening
from .means import averaged_buffers, majority
from .needs import Needs, declared, limited
from .placed import Placed, claims
from .reporting import to_metrics, without
from .screened import Screened
from .state import Stateless, below, pack, pack_learnt, unpack, unpack_learnt


def needs_of(strategy: Strategy) -> Needs:
    """What a strategy and those inside need of the clients' updates; each of them if it is not known."""
    if isinstance(strategy, Wrapper):
        return max(declared(strategy), needs_of(strategy.strategy))
    if isinstance(strategy, RuleStrategy):
        return declared(strategy)
    flowers = type(strategy).__module__.startswith("flwr.")  # a user's subclass may do anything
    means = flowers and (type(strategy) is FlowerFedAvg or isinstance(strategy, ADAPTIVE))
    return Needs.MEAN if means else Needs.EACH


class Wrapper(Placed, Screened, Strategy):
    """Screens and orders the replies, passes them to `strategy`, and acts on its result.

    `strategy`: any Flower Strategy; our FedAvg if none is given. `screening` and `buffers` as in
    `RuleStrategy`; the inner strategy's if none are given.

    The result keeps the sent dtypes (Flower's FedAdam returns float64). See `averages_buffers` for what
    happens to buffers.
    """

    around: ClassVar[Mapping[str, Any]] = {}
    """Settings of the FedAvg that the wrapper wraps if no strategy is given."""

    averages_buffers: ClassVar[bool] = True
    """Whether FedAvg's averages replace the buffers in a result of Flower's FedAvgM or FedOpt strategies."""

    may_hold_privacy: bool = False
    """Whether it may wrap DifferentialPrivacy: True only if no model depends on the updates that it sees."""

    is_private: bool = False
    """Whether it is DifferentialPrivacy itself."""

    State: ClassVar[type] = Stateless
    """The wrapper's own state; see `RuleStrategy.State`."""

    half: ClassVar[str] = ""
    """The wrapper's client half; see `RuleStrategy.half`."""

    needs: ClassVar[Needs] = Needs.NOTHING
    """What `act` uses of the clients' updates; a derived class that does not state it needs each. See `Needs`."""

    takes_tensors = True

    def __init__(
        self,
        strategy: Strategy | None = None,
        *,
        screening: Screening | None = None,
        buffers: Sequence[str] | None = None,
    ) -> None:
        self.strategy: Strategy = FedAvg(**self.around) if strategy is None else strategy
        require(
            isinstance(self.strategy, Strategy),
            "strategy",
            strategy,
            "a Flower Strategy (flwr.serverapp.strategy)",
        )
        self.screening: Screening = screening or getattr(self.strategy, "screening", None) or Screening()
        check(Screening, vars(self.screening))
        self.buffers = tuple(getattr(self.strategy, "buffers", ()) if buffers is None else buffers)
        for held in self.nested():
            declared = getattr(held, "buffers", self.buffers)
            require(
                set(declared) == set(self.buffers),
                "buffers",
                list(self.buffers),
                f"{list(declared)}, as in {type(held).__name__} inside; set them there only",
            )
        name = type(self).__name__
        require(
            claims(self, "may_hold_privacy")
            or not any(getattr(held, "is_private", False) for held in self.nested()),
            "strategy",
            "DifferentialPrivacy",
            f"one without DifferentialPrivacy: {name} would see unprotected updates; write "
            f"DifferentialPrivacy({name}(...))",
        )
        self.sent: Arrays = {}
        self.requested = Request()
        self.forget_rounds()
        self.state = self.State()

    # -------------------------------------------------------- what a wrapper defines

    def initial_state(self) -> Any:
        """The wrapper's own state before round 1."""
        return self.State()

    def act(self, sent: Arrays, cohort: Cohort, result: Arrays, state: Any) -> RoundResult:
        """The model to return and the next state, from the inner strategy's result; may replace `next_model`."""
        return RoundResult(result, state, {})

    def admit(self, cohort: Cohort) -> tuple[Cohort, Metrics]:
        """The valid replies as the inner strategy will see them, with diagnostics."""
        return cohort, {}

    def extend(self, config: ConfigRecord) -> ConfigRecord:
        """The config that is sent to clients; a wrapper without a client half adds its keys here."""
        return config

    def client_request(self, sent: Arrays) -> Request:
        """What clients need for the wrapper's own client half; see `RuleStrategy.client_request`."""
        return Request()

    def check_model(self, model: Arrays) -> None:
        """Raises ConfigError for settings that do not fit the model; called before each round, or before a run."""

    @property
    def varies(self) -> Mapping[str, Varies]:
        """What the wrapper's own values may be; see `RuleStrategy.varies`."""
        return {}

    def nested(self) -> Iterator[Strategy]:
        """The strategies inside, the outermost first."""
        return chain(self.strategy)

    @property
    def expected(self) -> Expected:
        """What this round's replies must contain in addition to the model, for the strategies inside too."""
        return getattr(self.strategy, "expected", Expected()) | expected_of(self.half, self.requested)

    # -------------------------------------------------------- state and the two models

    def state_dict(self) -> dict[str, Any]:
        """The wrapper's state and, below `inner/`, that of the strategy inside."""
        inner = {f"inner/{key}": value for key, value in self._inner_state().items()}
        return pack(self.state) | pack_learnt(self.learnt) | inner

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, exactly."""
        self.state = unpack(self.State, {k: v for k, v in state.items() if not k.startswith("inner/")})
        self.learnt = unpack_learnt(state)
        self._load_inner_state(below(state, "inner"))

    def _inner_state(self) -> dict[str, Any]:
        if isinstance(self.strategy, (RuleStrategy, Wrapper)):
            return self.strategy.state_dict()
        return builtin_state(self.strategy)

    def _load_inner_state(self, state: dict[str, Any]) -> None:
        if isinstance(self.strategy, (RuleStrategy, Wrapper)):
            self.strategy.load_state_dict(state)
        else:
            load_builtin_state(self.strategy, state)

    @property
    def next_model(self) -> Arrays | None:
        """The inner strategy's: see `RuleStrategy.next_model`."""
        return getattr(self.strategy, "next_model", None)

    @next_model.setter
    def next_model(self, model: Arrays) -> None:
        self.strategy.next_model = model  # type: ignore[attr-defined]

    @property
    def weighting(self) -> str:
        """How the innermost strategy weighs clients; Flower's own weigh by examples."""
        return getattr(self.strategy, "weighting", "examples")

    @property
    def summed_by(self) -> str | None:
        """The inner strategy's; see `Screened.summed_by`."""
        return getattr(self.strategy, "summed_by", None)

    @property
    def weighted_by_key(self) -> str:
        """The metric that counts examples."""
        return getattr(self.strategy, "weighted_by_key", wire.NUM_EXAMPLES)

    @property
    def configrecord_key(self) -> str:
        """The name of the config record of a message."""
        return getattr(self.strategy, "configrecord_key", wire.CONFIG)

    # -------------------------------------------------------- the methods of a Flower strategy

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The inner strategy's messages; the model in them is the model that was sent."""
        if server_round == 1:
            self.state = self.initial_state()
            self.forget_rounds()
        self.last_cohort = None  # as in `RuleStrategy`
        forget_current_arrays(self.strategy)
        extended = self.extend(ConfigRecord(dict(config)))
        messages = list(self.strategy.configure_train(server_round, arrays, extended, grid))
        self._send(self._model_in(messages[0]) if messages else arrays)
        self.check_model(self.sent)
        self.requested = self.client_request(self.sent)
        return with_request(messages, self.half, self.requested, self.configrecord_key)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The inner strategy's result after `act`.

        (None, metrics) if too few replies are valid, or if a model is not finite; the state inside and the
        wrapper's own are then unchanged.
        """
        replies = self._followed(replies)
        cohort = self.screened(server_round, replies, self.sent, self.weighted_by_key, self.expected)
        metrics = cohort.counts()
        if len(cohort) < self.screening.quorum:
            return None, MetricRecord(metrics)
        reported, uncounted = cohort.metrics(), cohort.uncounted
        cohort, admission = self.admit(cohort)
        before = self._inner_state()
        record, inner_metrics = self._aggregate_inside(server_round, cohort)
        extremes = {key: value for key, value in reported.items() if over_clients(key) in ("min", "max")}
        inner = without(inner_metrics or MetricRecord(), uncounted)
        metrics = reported | dict(inner) | extremes | metrics | admission
        if record is None:
            return None, MetricRecord(metrics)
        with np.errstate(over="ignore", invalid="ignore"):  # a result that is not finite is refused below
            result = self._conform(record, cohort)
            given = limited(cohort, declared(self), type(self).__name__)
            model, state, diagnostics = self.act(self.sent, given, result, self.state)
        if not is_usable(server_round, type(self).__name__, model, self.next_model):
            self._load_inner_state(before)
            return None, MetricRecord(metrics | NOT_FINITE)
        self.state = state
        return record_of(model), to_metrics(self, {k: v for k, v in metrics.items() if _kept(k)} | diagnostics)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The inner strategy's messages."""
        return list(self.strategy.configure_evaluate(server_round, arrays, config, grid))

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The inner strategy's aggregation, of the valid replies."""
        cohort = self.screened_metrics(server_round, replies, self.weighted_by_key)
        metrics = self.strategy.aggregate_evaluate(server_round, Accepted(cohort))
        return None if metrics is None else without(metrics, cohort.uncounted)

    def summary(self) -> None:
        """Log the inner strategy's settings."""
        self.strategy.summary()

    # -------------------------------------------------------- helpers

    def _aggregate_inside(
        self, server_round: int, cohort: Cohort
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The inner strategy's result; no model if it fails because of what single clients reported.

        Flower's QFedAvg raises an error if a metric that it reads is missing.
        """
        try:
            return self.strategy.aggregate_train(server_round, Accepted(cohort))
        except AggregationError as error:
            if cohort.reports_agree:  # the same for all clients, so not the fault of one of them
                raise
            name = type(self.strategy).__name__
            log(
                WARNING,
                "round %d: %s cannot aggregate, so the model does not change: %s",
                server_round,
                name,
                error,
            )
            return None, None

    def _model_in(self, message: Message) -> ArrayRecord:
        records = array_records(message.content)
        key = getattr(self.strategy, "arrayrecord_key", wire.ARRAYS)
        return records[key] if key in records else next(iter(records.values()))

    def _conform(self, record: ArrayRecord, cohort: Cohort) -> Arrays:
        """The inner result with the sent names, order, shapes and dtypes."""
        result = placed(values(record), device_in(self.sent.values()))
        inner = type(self.strategy).__name__
        if set(result) != set(self.sent):
            odd = sorted(set(result) ^ set(self.sent))[:5]
            raise RunError(f"{inner} returned a model whose arrays differ from the sent one's: {odd}")
        for name, array in self.sent.items():
            if result[name].shape != array.shape:
                raise RunError(f"{inner} returned {name!r} of shape {result[name].shape}, sent was {array.shape}")
        buffers: Arrays = {}
        if self.averages_buffers and isinstance(self.strategy, ADAPTIVE) and Layout.of(self.sent).buffers:
            buffers = averaged_buffers(self.sent, cohort.models, cohort.shares("examples"))
        for name, array in self.sent.items():
            if name not in buffers and is_boolean(array) and not is_boolean(result[name]):
                buffers[name] = majority(result[name], array)
        return {name: like(buffers.get(name, result[name]), array) for name, array in self.sent.items()}


def _kept(key: str) -> bool:
    """Whether a metric may be reported: Flower's own strategies average every metric, ids too."""
    return over_clients(key) != "none"
