"""One shell around a rule: the way of a round's messages to the clients, and of their replies back.

A strategy is a stack: acts, the outermost first, around a core, as in `optax.chain`. Only the outermost part's
shell is called. It asks the clients for what all parts need, screens the replies once, hands them inwards to the
core and its model outwards, and refuses a result that is not finite. Which replies are valid is in `screening.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fedstride.arrays.finite import held_of, put_back, taken_out
from fedstride.arrays.named import Arrays, Held
from fedstride.arrays.on_device import device_in, placed, record_of
from fedstride.errors import require
from fedstride.figures.metrics import over_clients
from fedstride.flower.strategy_internals import chain

from ..replies.cohort import Cohort, Expected
from ..replies.declared_needs import declared, limited
from ..replies.screening import screen, screen_metrics
from ..replies.screening_settings import Screening, each_for_itself
from .device import claims, device_of
from .requests import with_request
from .results import NOT_FINITE, conformed, is_usable
from .round_report import checked, figures, report, report_counts, report_figures, without
from .rule_state import below, check_state, first_state, pack_learnt, unpack_learnt
from .sent_model import sent_model
from .stack import Act, Metrics, Stack, StackPart


class Shell(StackPart, Strategy):
    """The Flower Strategy of a stack of parts, of which the first is this object itself.

    `last_cohort` and `last_evaluation` are the valid replies to the last training and the last evaluation; the
    former is None while the next training is under way. `last_admitted` is what the core saw of `last_cohort`: an
    act may leave replies out. `learnt` is what the screening knows of lengths (`replies/update_lengths.py`).
    """

    screening: Screening
    buffers: Sequence[str]
    weighted_by_key: str
    configrecord_key: str
    last_cohort: Cohort | None
    last_admitted: Cohort | None
    last_evaluation: Cohort | None
    learnt: Mapping[str, float]
    stack: Stack

    names: Mapping[int, str] = MappingProxyType({})
    """The names of clients and nodes in the log, by client id and by node id. Others are named by their id."""

    most_examples: Mapping[int, float] = MappingProxyType({})
    """The most examples that a client can have measured in an evaluation, by client id; others are not bounded."""

    def _enclose(self, stack: Stack) -> None:
        """Be the shell of this stack. Raises ConfigError if the screening does not fit a part."""
        self.stack = stack
        keeping = [part.part_name for part in stack.parts if part.clients_keep_state]
        require(
            not keeping or self.screening.clip is None,
            "screening.clip",
            self.screening.clip,
            f"null with {', '.join(keeping)}: a client's state follows from the whole update that it sent, and "
            "would not fit a shortened one; screening.factor rejects updates that are too long",
        )
        self.sent: Arrays = {}
        self.state = first_state(self.State, self.part_name)
        self._forget()

    # -------------------------------------------------------- to the clients

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The core's messages, with what every part asks of clients; the model in them is the one that is sent."""
        if server_round == 1:
            self._forget()
            for part in self.stack.parts:
                part.reset_state()
        self.last_cohort = self.last_admitted = None  # the models need no memory during the next training
        config = ConfigRecord(dict(config))
        for act in self.stack.acts:
            config = act.extend(config)
        record, messages = self.stack.core.ask_clients(server_round, arrays, config, grid)
        self.sent = sent_model(record, self.buffers, as_tensors=self.works_on_tensors)
        self._move_states()
        for part in reversed(self.stack.parts):
            part.check_model(self.sent)
            part.begin_round(server_round, len(messages))
            part.requested = part.client_request(self.sent)
            messages = with_request(messages, part.half, part.requested, self.configrecord_key)
        return messages

    @property
    def expected(self) -> Expected:
        """What this round's replies must contain in addition to the model."""
        expected = Expected()
        for part in reversed(self.stack.parts):
            expected |= part.own_expected()
        return expected

    # -------------------------------------------------------- and back

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The model after the core and all acts, with their diagnostics.

        (None, metrics) if too few replies are valid, or if a model is not finite; no state changes then, except
        that of an act which has admitted replies. What is not finite in the model that was sent takes part in
        nothing, and is in both models as it was sent.
        """
        self._change_next_model(taken_out)
        try:
            model, metrics = self._aggregated(server_round, replies)
        finally:
            self._change_next_model(put_back)
        back = None if model is None else record_of(put_back(model, held_of(self.sent)))
        return back, MetricRecord(metrics)

    def _aggregated(self, server_round: int, replies: Iterable[Message]) -> tuple[Arrays | None, Metrics]:
        """See `aggregate_train`."""
        cohort = self._screened(server_round, replies)
        if len(cohort) < self.screening.quorum:
            return None, cohort.counts()
        cohorts, admitted = self._admitted(cohort)
        self.last_admitted = cohorts[-1]
        before = [part.state for part in self.stack.parts]
        model, metrics = self._computed(server_round, cohort, cohorts[-1])
        for act, seen, diagnostics in reversed(list(zip(self.stack.acts, cohorts, admitted, strict=False))):
            metrics |= diagnostics
            if model is not None:
                model, metrics = self._after(server_round, act, seen, model, metrics)
        if model is None:
            for part, state in zip(self.stack.parts, before, strict=True):
                part.state = state
            return None, metrics
        return model, metrics

    def _screened(self, server_round: int, replies: Iterable[Message]) -> Cohort:
        """The valid replies, in the order of client ids; the others are logged."""
        received = list(replies)
        if self.works_on_tensors:
            device = device_of(received)
            self.sent = placed(self.sent, device_in(self.sent.values()) if device is None else device)
            self._move_states()
        zeroes = any(act.counts_as_zero for act in self.stack.acts)
        cohort = screen(
            received,
            self.sent,
            weighted_by_key=self.weighted_by_key,
            screening=each_for_itself(self.screening) if zeroes else self.screening,
            expected=self.expected,
            learnt=self.learnt,
            summed_by=self.stack.summed_by,
            zeroes=zeroes,
        )
        self.learnt = cohort.learnt
        report(server_round, cohort, self._warned, self.names)
        self.last_cohort = cohort
        return cohort

    def _change_next_model(self, change: Callable[[Arrays, Mapping[str, Held]], Arrays]) -> None:
        """Take what is not finite out of the model that is sent next, or put it back."""
        held, model = held_of(self.sent), self.next_model
        if held and model is not None:
            self.next_model = change(model, held)

    def _admitted(self, cohort: Cohort) -> tuple[list[Cohort], list[Metrics]]:
        """What each part sees of the replies, the outermost first, and the diagnostics of the acts' admissions."""
        cohorts, metrics = [], []
        for act in self.stack.acts:
            cohort, act.state, diagnostics = act.admit(self.sent, cohort, act.state)
            cohorts.append(cohort)
            metrics.append(diagnostics)
        return [*cohorts, cohort], metrics

    def _computed(self, server_round: int, cohort: Cohort, seen: Cohort) -> tuple[Arrays | None, Metrics]:
        """The core's model and metrics; no model if there is none, or if it is not finite."""
        model, reported, diagnostics = self.stack.core.aggregate_cohort(server_round, self.sent, seen)
        metrics = figures(cohort, reported, alone=not self.stack.acts) | cohort.counts()
        if model is None:
            return None, metrics
        who = self.stack.core.part_name
        with np.errstate(over="ignore", invalid="ignore"):  # a result that is not finite is refused
            model = taken_out(conformed(model, self.sent, who), held_of(self.sent))
        self._change_next_model(taken_out)  # a strategy that has a way of its own has put it back
        if not is_usable(server_round, who, model, self.next_model):
            return None, metrics | NOT_FINITE
        return model, metrics | checked(who, diagnostics)

    def _after(
        self, server_round: int, act: Act, cohort: Cohort, model: Arrays, metrics: Metrics
    ) -> tuple[Arrays | None, Metrics]:
        """The model and the metrics after an act; no model if it is not finite."""
        given, next_model = limited(cohort, declared(act), act.part_name), self.next_model
        with np.errstate(over="ignore", invalid="ignore"):
            changed, state, diagnostics = act.act(self.sent, given, model, act.state)
            check_state(state, act.part_name)
            act.state = state
            if changed is not model:
                changed = conformed(changed, self.sent, act.part_name)
        new = [arrays for arrays, old in ((changed, model), (self.next_model, next_model)) if arrays is not old]
        if not is_usable(server_round, act.part_name, *new):
            return None, metrics | NOT_FINITE
        kept = {key: value for key, value in metrics.items() if over_clients(key) != "none"}  # no ids, no counts
        return changed, kept | checked(act.part_name, diagnostics)

    # -------------------------------------------------------- evaluation

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The core's messages with the returned model; none if an act does not let clients evaluate."""
        if not all(act.lets_evaluate for act in self.stack.acts):
            return []
        return self.stack.core.ask_for_evaluation(server_round, arrays, config, grid)

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """The core's aggregation, of the valid replies.

        A mean of the clients' own figures by Flower's function is replaced by the figure of all clients' examples.
        """
        cohort = screen_metrics(replies, self.weighted_by_key, self.screening.max_share, self.most_examples)
        report_figures(server_round, cohort, self._warned, self.names)
        report_counts(server_round, cohort, self._warned, self.names)
        self.last_evaluation = cohort
        metrics = self.stack.core.aggregate_evaluation(server_round, cohort)
        if metrics is None:
            return None
        counted = without(metrics, cohort.uncounted)
        return MetricRecord(counted | cohort.pooled_metrics if self.stack.core.averages_evaluations else counted)

    # -------------------------------------------------------- state

    @property
    def next_model(self) -> Arrays | None:
        """The model that the next round sends, if the core sends another model than it returns; else None.

        An act that changes the model that is sent replaces it here.
        """
        return self.stack.core.next_model

    @next_model.setter
    def next_model(self, model: Arrays) -> None:
        self.stack.core.next_model = model

    def state_dict(self) -> dict[str, Any]:
        """The state after the last round, as a flat dict of numpy arrays, numbers and strings.

        That of the parts inside is below `inner/`.
        """
        inside = self.stack.parts[1].state_dict() if self.stack.acts else {}
        inner = {f"inner/{key}": value for key, value in inside.items()}
        return super().state_dict() | pack_learnt(self.learnt) | inner

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what `state_dict` returned, exactly."""
        super().load_state_dict({key: value for key, value in state.items() if not key.startswith("inner/")})
        self.learnt = unpack_learnt(state)
        if self.stack.acts:
            self.stack.parts[1].load_state_dict(below(state, "inner"))

    def _forget(self) -> None:
        """Begin a new run: nothing is learnt, and everything is logged again."""
        self.last_cohort = self.last_admitted = None
        self.last_evaluation = None
        self.learnt = {}
        self._warned: set[str] = set()

    # -------------------------------------------------------- where it computes

    @property
    def works_on_tensors(self) -> bool:
        """Whether all our parts take tensors. Others do not: they read the bytes of records."""
        return all(claims(part, "takes_tensors") for part in chain(self) if isinstance(part, Shell))

    def _move_states(self) -> None:
        """Bring all states to where the sent model is."""
        for part in self.stack.parts:
            part.move_state(device_in(self.sent.values()))


VERBS = ("configure_train", "aggregate_train", "configure_evaluate", "aggregate_evaluate")


def has_own_way(strategy: Strategy) -> bool:
    """Whether a strategy must be called as Flower does: it is not ours, or its class changes how it is called."""
    return not isinstance(strategy, Shell) or any(
        getattr(type(strategy), verb) is not getattr(Shell, verb) for verb in VERBS
    )
