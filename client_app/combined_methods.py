"""Combines all methods of a client's round: begins each, merges their plans into one, and ends each.

The order is: client rule, objective, client halves in the order that the server sends, and `client.local_steps` if
no other method sets the mini-batches. A client half is the code that a server rule needs on the client.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, RecordDict

from fedstride.arrays.named import Arrays, views
from fedstride.errors import ConfigError
from fedstride.messages import wire
from fedstride.messages.records import array_records, config_records

from . import for_server_rules
from .from_message import Work
from .registry import EXCLUSIVE, HIDDEN, OBJECTIVES, RULES
from .state.saved_states import States
from .training.cursor_batches import LocalSteps
from .training.method import ClientMethod, Job, Method, Plan, Received, Result, State
from .training.stackable_parts import one_pull

RESERVED_METRICS = {
    wire.NUM_EXAMPLES,
    wire.CLIENT_ID,
    wire.TRAIN_LOSS,
    wire.TRAIN_ACCURACY,
    wire.TRAIN_STEPS,
    wire.TRAIN_SECONDS,
    *wire.TEXTS_OF_ROWS,
    *wire.CLIENTS_OF_ROWS,
}
"""Metrics of the ClientApp, and names of other values in the records. A method cannot use these names."""


HOOKS = tuple(name for name, value in vars(Method).items() if inspect.isfunction(value))
"""The functions that are called of every method."""


class Member(NamedTuple):
    """A method of a round, with its name. `role`: the group in which it was chosen."""

    role: str
    name: str
    method: ClientMethod

    @property
    def label(self) -> str:
        """A unique name of the method in its round, for error messages and for its saved state."""
        return f"{self.role}.{self.name}"


class RoundOutput(NamedTuple):
    """The combined results of all methods of a round: records of arrays by name, metrics, and states by label."""

    arrays: dict[str, Arrays]
    metrics: dict[str, float]
    states: dict[str, State]


class Composition:
    """The methods of one client's round."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members
        self._plans: dict[str, Plan] = {}

    def begin(self, job: Job, content: RecordDict, states: States) -> Plan:
        """Begin all methods, each with its part of the message, and return the combined plan.

        Raises ConfigError, with the names of both, if two methods cannot be used together.
        """
        plans = {member.label: _begin(member, job, content, states) for member in self.members}
        plan = combine(plans)
        if plan.batches is None and job.client.local_steps is not None:
            local_steps = Member("client", "local_steps", LocalSteps(job.client.local_steps))
            self.members = [*self.members, local_steps]
            plan = combine({**plans, local_steps.label: _begin(local_steps, job, content, states)})
        self._plans = plans
        return plan

    @property
    def are_ours(self) -> bool:
        """Whether all methods are this project's, so that we know how they use the network.

        In `begin` they undo each change of it before they return, and keep only copies of it. In `end` they read
        it as `job.model` or `job.parameters`, do not change it, and draw no random numbers.
        """
        package = __name__.partition(".")[0]
        return all(type(member.method).__module__.partition(".")[0] == package for member in self.members)

    def obstacle(self) -> str | None:
        """Why this client must train alone, with the method's name; None if it can train together with others."""
        for label, plan in self._plans.items():
            needs = plan.needs_own_client
            if needs:
                return f"{label} has {needs}, which cannot be computed for several clients at once"
        return None

    def end(self, job: Job, plan: Plan, result: Result) -> RoundOutput:
        """End all methods and collect their results.

        Arrays are returned under `NAME.KEY`, and each client half gets the metric `done/NAME`. Raises ConfigError
        for a metric or record whose name is reserved, or used by another method of the round.
        """
        output = RoundOutput({}, {}, {})
        for member in self.members:
            returned, state = member.method.end(job, plan, result)
            arrays = {wire.of_half(member.name, key): dict(record) for key, record in returned.arrays.items()}
            used = (RESERVED_METRICS | set(output.metrics)) & set(returned.metrics)
            used |= set(output.arrays) & set(arrays)
            if used:
                raise ConfigError(
                    f"{member.label} returns {min(used)}, but this name is already used in the round; rename it"
                )
            output.metrics.update(returned.metrics)
            output.arrays.update(arrays)
            if member.role == for_server_rules.ROLE:
                output.metrics[wire.done(member.name)] = 1
            output.states[member.label] = state
        return output


def of(work: Work, config: Mapping[str, Any]) -> Composition:
    """The methods that a message names. Raises ConfigError for a client half that this client does not have."""
    chosen = [
        Member("client", work.client.name, RULES.make(work.client)),
        Member("objective", work.objective.name, OBJECTIVES.make(work.objective)),
    ]
    return Composition(
        chosen
        + [
            Member(for_server_rules.ROLE, name, for_server_rules.make(name))
            for name in for_server_rules.names(config.get(wire.HALVES))
        ]
    )


def combine(plans: Mapping[str, Plan]) -> Plan:
    """Combine the plans of several methods, given by label, into one plan.

    Raises ConfigError, with the labels of both, if two methods set a field that only one can set.
    """
    values: dict[str, Any] = {}
    set_by: dict[str, str] = {}
    for label, plan in plans.items():
        for key in EXCLUSIVE:
            value = getattr(plan, key)
            if value is None:
                continue
            if key in values:
                raise ConfigError(
                    f"{set_by[key]} and {label} cannot be used together: both set {EXCLUSIVE[key]}; "
                    "choose one of them"
                )
            values[key], set_by[key] = value, label
    return Plan(
        **values,
        corrections=tuple(correct for plan in plans.values() for correct in plan.corrections),
        loss_terms=tuple(term for plan in plans.values() for term in plan.loss_terms),
        pull=one_pull([plan.pull for plan in plans.values() if plan.pull is not None]),
        contexts=tuple(context for plan in plans.values() for context in plan.contexts),
    )


def _begin(member: Member, job: Job, content: RecordDict, states: States) -> Plan:
    _check_hooks(member.method)
    plan = member.method.begin(job, received(member.name, content), states.get(member.label, {}))
    _check_hooks(member.method)
    return plan


def _check_hooks(method: ClientMethod) -> None:
    """Raise ConfigError if an attribute hides a hook, which would be called in its place."""
    kind = type(method)
    for hook in HOOKS:
        if hook in getattr(method, "__dict__", {}) or not callable(getattr(kind, hook, None)):
            raise ConfigError(HIDDEN.format(kind=kind.__name__, hook=hook))


def received(name: str, content: RecordDict) -> Received:
    """The values and arrays in a message for the method with this name: keys and records named `NAME.KEY`.

    Raises ConfigError for arrays that cannot be read.
    """
    config: Mapping[str, Any] = config_records(content).get(wire.CONFIG) or {}
    return Received(
        name,
        values=dict(_with_prefix(name, config)),
        arrays={
            key: arrays_in(f"{name}.{key}", record) for key, record in _with_prefix(name, array_records(content))
        },
    )


def arrays_in(name: str, record: ArrayRecord, read: Callable[[ArrayRecord], Arrays] = views) -> Arrays:
    """A record's arrays, by default as numpy arrays; raises ConfigError, with its name, for invalid ones."""
    try:
        return read(record)
    except ValueError as error:
        raise ConfigError(f"{name} contains arrays that cannot be read: {error}") from error


def _with_prefix(name: str, records: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    start = wire.of_half(name, "")
    keys = [key for key in records if key.startswith(start)]
    return ((key.removeprefix(start), records[key]) for key in keys)
