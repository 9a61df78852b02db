"""A strategy that is not ours as the core of one of ours: Flower's own, or a user's.

It gets plain messages of valid replies in the order of client ids, all with the same keys, and is called as Flower
calls it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial
from logging import WARNING
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg as FlowerFedAvg
from flwr.serverapp.strategy import Strategy
from typing_extensions import override

from fedstride.arrays.dtypes import is_bfloat16
from fedstride.arrays.finite import held_in, held_of, put_back, taken_out
from fedstride.arrays.named import Arrays, Held, Layout, is_kind, like, namespace, views
from fedstride.arrays.on_device import Device, plain, record_of, values
from fedstride.flower.logs import log
from fedstride.flower.strategy_internals import (
    ADAPTIVE,
    AVERAGES_METRICS,
    AggregationError,
    adapted_norms,
    builtin_state,
    chain,
    forget_current_arrays,
    is_known,
    load_builtin_state,
    reset_builtin_state,
)
from fedstride.messages import wire
from fedstride.messages.records import array_records

from ..replies.cohort import Cohort, Expected
from ..replies.declared_needs import Needs
from ..replies.reply_messages import messages_of
from ..sums.means import averaged_buffers
from .flower_strategy import Shell
from .reported_metrics import both_kinds, needs_completed
from .rule_state import below, check_values, flat, nested
from .stack import Computed, Core, RoundMessages


class Foreign(Core):
    """A strategy with Flower's interface and nothing else; one of ours if its class changes how it is called.

    `averages_buffers`: whether FedAvg's averages replace the buffers in a result of FedAvgM or a FedOpt strategy.
    """

    def __init__(self, strategy: Strategy, *, averages_buffers: bool) -> None:
        self.strategy = strategy
        self.averages_buffers = averages_buffers and isinstance(strategy, ADAPTIVE)
        self._before = adapted_norms(strategy)

    @property
    @override
    def part_name(self) -> str:
        return type(self.strategy).__name__

    @override
    def own_needs(self) -> Needs:
        """Known of Flower's means; a user's subclass may do anything."""
        if isinstance(self.strategy, Shell):
            return self.strategy.stack.needs
        flowers = type(self.strategy).__module__.startswith("flwr.")
        means = flowers and (type(self.strategy) is FlowerFedAvg or isinstance(self.strategy, ADAPTIVE))
        return Needs.MEAN if means else Needs.EACH

    @override
    def own_expected(self) -> Expected:
        return getattr(self.strategy, "expected", Expected())

    # -------------------------------------------------------- a round

    @override
    def ask_clients(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> RoundMessages:
        forget_current_arrays(self.strategy)
        given = arrays if isinstance(self.strategy, Shell) else _for_flower(arrays)
        messages = list(self.strategy.configure_train(server_round, given, config, grid))
        if given is not arrays:
            _restore(messages, given, arrays)
        return RoundMessages(self._model_in(messages[0]) if messages else arrays, messages)

    @override
    def aggregate_cohort(self, server_round: int, sent: Arrays, cohort: Cohort) -> Computed:
        """No model if it fails because of what single clients reported.

        Flower's QFedAvg raises an error if a metric that it reads is missing.
        """
        read = () if isinstance(self.strategy, Shell) else _unknown_to_flower(sent, held_of(sent))
        returns, completed = self.own_expected().returns, needs_completed(self.strategy)
        messages = messages_of(cohort, returns, read, as_reported=not completed)
        other = partial(messages_of, cohort, returns, read, as_reported=completed)
        try:
            with both_kinds(self.strategy, "train_metrics_aggr_fn", messages, other, completed=completed):
                record, metrics = self.strategy.aggregate_train(server_round, messages)
        except AggregationError as error:
            if cohort.reports_agree:  # the same for all clients, so not the fault of one of them
                raise
            text = "round %d: %s cannot aggregate, so the model does not change: %s"
            log(WARNING, text, server_round, self.part_name, error)
            return Computed(None, {})
        if record is None:
            return Computed(None, metrics or {})
        return Computed(self._with_buffers(values(record), sent, cohort), metrics or {})

    @override
    def ask_for_evaluation(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        return list(self.strategy.configure_evaluate(server_round, arrays, config, grid))

    @override
    def aggregate_evaluation(self, server_round: int, cohort: Cohort) -> MetricRecord | None:
        completed = needs_completed(self.strategy)
        messages = messages_of(cohort, as_reported=not completed)
        other = partial(messages_of, cohort, as_reported=completed)
        with both_kinds(self.strategy, "evaluate_metrics_aggr_fn", messages, other, completed=completed):
            return self.strategy.aggregate_evaluate(server_round, messages)

    @property
    @override
    def averages_evaluations(self) -> bool:
        """Also of a strategy around others, such as Flower's for privacy: what the innermost one does."""
        innermost = list(chain(self.strategy))[-1]
        return getattr(innermost, "evaluate_metrics_aggr_fn", None) is AVERAGES_METRICS

    def _model_in(self, message: Message) -> ArrayRecord:
        records = array_records(message.content)
        key = getattr(self.strategy, "arrayrecord_key", wire.ARRAYS)
        return records[key] if key in records else next(iter(records.values()))

    def _with_buffers(self, model: Arrays, sent: Arrays, cohort: Cohort) -> Arrays:
        """The model; with FedAvg's averages of buffers, which a server optimiser could make negative.

        Flower averages whole numbers in float64, which has not all of 64 bits: those that no client changed stay.
        """
        if not Layout.of(sent).buffers:
            return model
        if self.averages_buffers:
            buffers = averaged_buffers(sent, cohort.models, cohort.shares("examples"))
        elif type(self.strategy).__module__.startswith("flwr."):
            buffers = _unchanged_integers(sent, cohort.models)
        else:
            return model
        return {name: buffers.get(name, array) for name, array in model.items()}

    # -------------------------------------------------------- state

    @property
    @override
    def next_model(self) -> Arrays | None:
        return getattr(self.strategy, "next_model", None)

    @next_model.setter
    def next_model(self, model: Arrays) -> None:
        self.strategy.next_model = model  # type: ignore[attr-defined]

    @override
    def reset_state(self) -> None:
        """Flower's own state, which Flower does not reset; ours reset themselves in round 1."""
        reset_builtin_state(self.strategy, self._before)

    @override
    def move_state(self, device: Device) -> None:
        """Its state stays where it is."""

    @property
    def state(self) -> dict[str, Any]:
        """A copy."""
        return self.state_dict()

    @state.setter
    def state(self, state: dict[str, Any]) -> None:
        self.load_state_dict(state)

    @property
    @override
    def not_kept(self) -> str | None:
        for inner in self._inside:
            if not (is_known(inner) or _keeps_itself(inner)):
                name = type(inner).__name__
                return (
                    f"what {name} keeps between rounds is in no checkpoint, so this run cannot be resumed: "
                    f"define state_dict() and load_state_dict(state) in {name}; "
                    "the first returns {} if it keeps nothing"
                )
        return None

    @property
    def _inside(self) -> list[Strategy]:
        """The strategy and those that it wraps, to the first that keeps theirs too."""
        inside = []
        for inner in chain(self.strategy):
            inside.append(inner)
            if isinstance(inner, Shell):
                break
        return inside

    @override
    def state_dict(self) -> dict[str, Any]:
        if isinstance(self.strategy, Shell):
            return self.strategy.state_dict()
        state = builtin_state(self.strategy)
        for depth, inner in enumerate(self._inside):
            if _keeps_itself(inner):
                state |= {f"{OWN}{depth}/{key}": value for key, value in _own_state(inner).items()}
        return state

    @override
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if isinstance(self.strategy, Shell):
            self.strategy.load_state_dict(state)
            return
        load_builtin_state(self.strategy, dict(state))
        inner: Any
        for depth, inner in enumerate(self._inside):
            if _keeps_itself(inner):
                own = below(state, f"{OWN}{depth}")
                fields = dict.fromkeys(key.partition("/")[0] for key in own)
                inner.load_state_dict(own if isinstance(inner, Shell) else nested(own, fields))


OWN = "own"


def _keeps_itself(strategy: Any) -> bool:
    """Whether it says itself what it keeps between rounds."""
    return all(callable(getattr(strategy, name, None)) for name in ("state_dict", "load_state_dict"))


def _own_state(strategy: Any) -> dict[str, Any]:
    """A copy of what it keeps, flat. Raises RunError for what cannot be stored."""
    values = strategy.state_dict()
    if isinstance(strategy, Shell):
        return deepcopy(dict(values))
    check_values(values, type(strategy).__name__)
    return deepcopy(flat(values))


# ---------------------------------------------------------------- arrays that Flower's strategies do not take


def _unchanged_integers(sent: Arrays, models: Sequence[Arrays]) -> Arrays:
    xp = namespace(next(iter(sent.values())))
    return {
        name: sent[name]
        for name in Layout.of(sent).buffers
        if is_kind(xp, sent[name].dtype, "integral")
        and all(bool(xp.all(model[name] == sent[name])) for model in models)
    }


def _unknown_to_flower(model: Mapping[str, Any], held: Mapping[str, Held]) -> list[str]:
    """The names of arrays that they get in another form: those with values that are not finite, and bfloat16."""
    return [name for name, array in model.items() if name in held or is_bfloat16(array.dtype)]


def _for_flower(record: ArrayRecord) -> ArrayRecord:
    """The record with 0 for what is not finite, and bfloat16 in float32; the same record if there is neither."""
    model = views(record)
    held = held_in(model)
    names = _unknown_to_flower(model, held)
    if not names:
        return record
    changed = taken_out({name: model[name] for name in names}, held)
    return _replaced(record, {name: plain(array) for name, array in changed.items()})


def _restore(messages: Iterable[Message], given: ArrayRecord, original: ArrayRecord) -> None:
    """Make the models in the messages those that clients get: dtypes, and what is not finite, of the original."""
    model = views(original)
    held = held_in(model)
    names = _unknown_to_flower(model, held)

    def restored(record: ArrayRecord) -> ArrayRecord:
        if record is given:
            return original
        arrays = views(record)
        changed = {name: like(arrays[name], model[name]) for name in names if name in arrays}
        return _replaced(record, put_back(changed, held))

    for message in messages:
        records = array_records(message.content)
        message.content = RecordDict(
            {**message.content, **{key: restored(record) for key, record in records.items()}}
        )


def _replaced(record: ArrayRecord, arrays: Arrays) -> ArrayRecord:
    """The record with other arrays in place of those with these names."""
    changed = record_of(arrays)
    return ArrayRecord({name: changed.get(name, array) for name, array in record.items()})
