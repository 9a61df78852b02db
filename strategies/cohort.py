"""The valid replies of a round: each client's model and metrics, in the order of client ids.

Also: how they are passed to a strategy inside another. `screening.py` decides which replies are valid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from fedstride import wire
from fedstride.arrays import Arrays, Layout, difference, norm, to_record, total
from fedstride.metrics import over_clients

SCREENING = "screening/"
"""Prefix of the metrics that count a round's replies."""


@dataclass(frozen=True)
class Expected:
    """What a strategy expects from clients in addition to the model."""

    halves: tuple[str, ...] = ()  # names of client halves; a reply reports each one that was done
    returns: Mapping[str, Arrays] = field(default_factory=dict)  # by record name: same names, shapes, dtypes

    def __or__(self, other: Expected) -> Expected:
        return Expected((*self.halves, *other.halves), {**self.returns, **other.returns})


@dataclass(frozen=True)
class Reply:
    """One valid reply: the client's model and metrics."""

    node_id: int
    client_id: int  # the partition id if the client has one, else the node id
    num_examples: float  # n_k > 0
    model: Arrays  # read-only views, in the order of the sent model
    metrics: Mapping[str, Any]
    length: float  # ||w_k - w|| over all parameters
    message: Message
    extras: Mapping[str, Arrays] = field(default_factory=dict)  # further arrays by record name; read-only
    notes: tuple[str, ...] = ()  # what the screening changed


@dataclass(frozen=True)
class Rejected:
    """A reply that is not used, and the reason."""

    node_id: int
    reason: str


@dataclass(frozen=True)
class Cohort:
    """The valid replies of a round, in the order of client ids, and the rejected ones."""

    replies: tuple[Reply, ...]
    rejected: tuple[Rejected, ...] = ()
    halves: tuple[str, ...] = ()  # the client halves that these clients were asked to do
    learnt: Mapping[str, float] = field(default_factory=dict)  # reference lengths for the next round; screening.py

    def __len__(self) -> int:
        return len(self.replies)

    @cached_property
    def models(self) -> list[Arrays]:
        """w_k, in order."""
        return [reply.model for reply in self.replies]

    def shares(self, weighting: str) -> list[float]:
        """p_k, in order: n_k / n for "examples", 1 / m for "uniform". They sum to 1."""
        if weighting == "uniform":
            return [1.0 / len(self)] * len(self)
        total = math.fsum(reply.num_examples for reply in self.replies)
        return [reply.num_examples / total for reply in self.replies]

    def metrics(self, weighting: str = "examples") -> dict[str, float | list[float]]:
        """The metrics that all clients report, combined over clients as `fedstride/metrics.py` says."""
        if not self.replies:
            return {}
        shares = self.shares(weighting)
        result: dict[str, float | list[float]] = {}
        for key in self.common_metrics():
            how = over_clients(key)
            values = [reply.metrics[key] for reply in self.replies]
            if how == "none":
                continue
            if isinstance(values[0], list):
                result[key] = [_combine(how, column, shares) for column in zip(*values, strict=True)]
            else:
                result[key] = _combine(how, values, shares)
        return result

    @cached_property
    def not_done(self) -> dict[str, list[int]]:
        """By client half: ids of the clients that did not report it as done; only halves with such clients."""
        missing = {
            half: [reply.client_id for reply in self.replies if reply.metrics.get(wire.done(half)) != 1]
            for half in self.halves
        }
        return {half: clients for half, clients in missing.items() if clients}

    def counts(self) -> dict[str, Any]:
        """Metrics of the round: how many replies are not used, how many clients did not do all client halves.

        And, if there are such replies, how many the screening changed.
        """
        counts: dict[str, Any] = {f"{SCREENING}rejected": len(self.rejected)}
        changed = sum(bool(reply.notes) for reply in self.replies)
        if changed:
            counts[f"{SCREENING}changed"] = changed
        if self.halves:
            counts[f"{SCREENING}not_done"] = len({client for each in self.not_done.values() for client in each})
        return counts

    def extras(self, record: str) -> list[Arrays]:
        """The further arrays of each client in the record of this name, in order."""
        return [reply.extras[record] for reply in self.replies]

    def common_metrics(self) -> list[str]:
        """The metrics that every client reports in the same form: a number, or a list of the same length.

        Clients cannot report the counts of the screening.
        """
        first = (key for key in self.replies[0].metrics if not key.startswith(SCREENING))
        return [key for key in first if len({_form(reply.metrics.get(key)) for reply in self.replies}) == 1]


class Accepted(list[Message]):
    """The messages of a cohort that has passed the screening, for the strategy inside a wrapper.

    Flower's own strategies see plain messages whose arrays and metrics have the same keys; ours use the
    cohort and do not screen again.
    """

    def __init__(self, cohort: Cohort) -> None:
        common = cohort.common_metrics() if cohort.replies else []
        super().__init__(_clean(reply, common, cohort.replies[0]) for reply in cohort.replies)
        self.cohort = cohort


def with_model(reply: Reply, sent: Arrays, model: Arrays, weighted_by_key: str) -> Reply:
    """The reply as if the client had sent this model, had one example, and reported no other metrics."""
    metrics: dict[str, Any] = {weighted_by_key: 1, wire.CLIENT_ID: reply.client_id}
    message = shallow(reply.message)
    metric_key = next(iter(reply.message.content.metric_records))
    message.content = RecordDict({model_key(reply): to_record(model), metric_key: MetricRecord(metrics)})
    length = norm(difference(model, sent, Layout.of(sent).parameters))
    changed: dict[str, Any] = {"num_examples": 1.0, "model": model, "metrics": metrics, "length": length}
    return replace(reply, **changed, message=message, extras={})


def _form(value: Any) -> Any:
    """Equal for two values that can be averaged."""
    if value is None:
        return object()
    return len(value) if isinstance(value, list) else -1


def _combine(how: str, values: Sequence[float], shares: Sequence[float]) -> float:
    if how == "min":
        return real(min(values))
    if how == "max":
        return real(max(values))
    # not fsum, which raises at inf - inf
    return total(share * real(value) for share, value in zip(shares, values, strict=True))


def _clean(reply: Reply, metrics: Sequence[str], first: Reply) -> Message:
    """A copy of the message that a strategy may change, with these metrics and the arrays in the sent order."""
    record = reply.message.content.array_records[model_key(reply)]
    key = model_key(first)
    metric_key = next(iter(first.message.content.metric_records))
    message = shallow(reply.message)
    message.content = RecordDict(
        {
            key: ArrayRecord({name: record[name] for name in reply.model}),
            metric_key: MetricRecord({name: reply.metrics[name] for name in metrics}),
        }
    )
    return message


def model_key(reply: Reply) -> str:
    """The name of the record that holds the model."""
    return next(name for name in reply.message.content.array_records if name not in reply.extras)


def shallow(message: Message) -> Message:
    """A shallow copy of the message: its content can be replaced."""
    copy = object.__new__(Message)
    copy.__dict__.update(message.__dict__)
    return copy


def real(value: float) -> float:
    """As a float; an int that no float can represent becomes infinite."""
    try:
        return float(value)
    except OverflowError:  # an int of more than 1024 bits
        return math.inf if value > 0 else -math.inf
