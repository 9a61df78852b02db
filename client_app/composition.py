"""All methods of a round together: begun in turn, their plans made one, ended in turn.

Knows names, records and what two methods cannot share; does not know what any of them does. The order is
client rule, objective, halves of server rules as the server names them, then the client's own counting of
mini-batches, if nobody else says which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from flwr.app import ArrayRecord, RecordDict

from fedstride import wire
from fedstride.arrays import Arrays, views
from fedstride.errors import ConfigError

from . import halves
from .local_steps import LocalSteps
from .method import ClientMethod, Job, Plan, Received, Result, State
from .parts import OBJECTIVES, RULES
from .state import States
from .work import Work

ALONE = {
    "factors": "a rate for each neuron",
    "step_factors": "a rate for each step",
    "batches": "which mini-batches are met",
    "displacement": "a displacement after each step",
}
"""What only one method of a round can say."""


RESERVED = {
    wire.NUM_EXAMPLES,
    wire.CLIENT_ID,
    wire.TRAIN_LOSS,
    wire.TRAIN_ACCURACY,
    wire.TRAIN_STEPS,
    wire.TRAIN_SECONDS,
}
"""Metrics that the client itself reports."""


class Member(NamedTuple):
    """A method under its name; `role` is the group that chose it."""

    role: str
    name: str
    method: ClientMethod

    @property
    def label(self) -> str:
        """Tells the methods of a round apart, in errors and in what the client keeps."""
        return f"{self.role}.{self.name}"


class Handed(NamedTuple):
    """What the methods of a round hand back: records of arrays by name, metrics, and their states."""

    arrays: dict[str, Arrays]
    metrics: dict[str, float]
    states: dict[str, State]


class Composition:
    """The methods of one client's round."""

    def __init__(self, members: list[Member]) -> None:
        self.members = members

    def begin(self, job: Job, content: RecordDict, states: States) -> Plan:
        """Begin all methods with what the message holds for each; their one plan.

        Raises ConfigError where two of them cannot share the round, naming both.
        """
        plans = {member.label: _begun(member, job, content, states) for member in self.members}
        plan = combine(plans)
        if plan.batches is None and job.client.local_steps is not None:
            own = Member("client", "local_steps", LocalSteps(job.client.local_steps))
            self.members = [*self.members, own]
            plan = combine({**plans, own.label: _begun(own, job, content, states)})
        return plan

    def end(self, job: Job, plan: Plan, result: Result) -> Handed:
        """End all methods; arrays go under `NAME.KEY`, and each half says that it was done.

        Raises ConfigError for a metric or record that another one, or the client itself, has under its name.
        """
        handed = Handed({}, {}, {})
        for member in self.members:
            returned, state = member.method.end(job, plan, result)
            arrays = {wire.of_half(member.name, key): dict(found) for key, found in returned.arrays.items()}
            taken = (RESERVED | set(handed.metrics)) & set(returned.metrics) | set(handed.arrays) & set(arrays)
            if taken:
                raise ConfigError(f"{member.label} hands back {min(taken)}, which is already taken this round")
            handed.metrics.update(returned.metrics)
            handed.arrays.update(arrays)
            if member.role == halves.ROLE:
                handed.metrics[wire.done(member.name)] = 1
            handed.states[member.label] = state
        return handed


def of(work: Work, config: Mapping[str, Any]) -> Composition:
    """The methods that a message asks for. Raises ConfigError for a half that this client does not have."""
    chosen = [
        Member("client", work.client.name, RULES.make(work.client)),
        Member("objective", work.objective.name, OBJECTIVES.make(work.objective)),
    ]
    return Composition(
        chosen + [Member(halves.ROLE, name, halves.make(name)) for name in halves.names(config.get(wire.HALVES))]
    )


def combine(plans: Mapping[str, Plan]) -> Plan:
    """One plan from those of several methods, by label.

    Raises ConfigError, naming both, where two say what only one can.
    """
    said: dict[str, Any] = {}
    by: dict[str, str] = {}
    for label, plan in plans.items():
        for key in ALONE:
            value = getattr(plan, key)
            if value is None:
                continue
            if key in said:
                raise ConfigError(
                    f"{by[key]} and {label} cannot be used together: both set {ALONE[key]}; choose one of them"
                )
            said[key], by[key] = value, label
    return Plan(
        **said,
        corrections=tuple(correct for plan in plans.values() for correct in plan.corrections),
        loss_terms=tuple(term for plan in plans.values() for term in plan.loss_terms),
    )


def _begun(member: Member, job: Job, content: RecordDict, states: States) -> Plan:
    return member.method.begin(job, received(member.name, content), states.get(member.label, {}))


def received(name: str, content: RecordDict) -> Received:
    """What a message holds for the method of this name: keys and records called `NAME.KEY`.

    Raises ConfigError for arrays that cannot be read.
    """
    config: Mapping[str, Any] = content.config_records.get(wire.CONFIG) or {}
    return Received(
        name,
        values=dict(_under(name, config)),
        arrays={key: arrays_in(f"{name}.{key}", each) for key, each in _under(name, content.array_records)},
    )


def arrays_in(name: str, record: ArrayRecord) -> Arrays:
    """Read-only views of a record's arrays. Raises ConfigError, naming the record, for bytes that are none."""
    try:
        return views(record)
    except ValueError as error:
        raise ConfigError(f"{name} holds arrays that cannot be read: {error}") from error


def _under(name: str, records: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    start = wire.of_half(name, "")
    return ((key.removeprefix(start), value) for key, value in records.items() if key.startswith(start))
