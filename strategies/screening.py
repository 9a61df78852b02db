"""Which replies of a round are used: screening and order (design, section 3.5).

Knows what a usable reply looks like beside the model that was sent; does not know what is done with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import median
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from fedstride import wire
from fedstride.arrays import Arrays, Layout, difference, float64, is_floating, norm, squared_norm, to_record, views
from fedstride.errors import ReplyError, last_line
from fedstride.metrics import over_clients

from .limits import Screening

MAX_EXAMPLES = 10**12
"""A client that claims more examples than this is not believed."""

SCREEN = "screen/"
"""Under this stand the counts of a round."""


@dataclass(frozen=True)
class Expected:
    """What a strategy asked clients for beside the model."""

    halves: tuple[str, ...] = ()  # by name; a reply says of each that it was done
    returns: Mapping[str, Arrays] = field(default_factory=dict)  # by record name: like these arrays

    def __or__(self, other: Expected) -> Expected:
        return Expected((*self.halves, *other.halves), {**self.returns, **other.returns})


@dataclass(frozen=True)
class Reply:
    """One usable reply: the client's model and what it reports."""

    node_id: int
    client_id: int  # the partition id where the client has one, else the node id
    num_examples: float  # n_k > 0
    model: Arrays  # read-only views, in the order of the sent model
    metrics: Mapping[str, Any]
    length: float  # ||w_k - w|| over all parameters
    message: Message
    beside: Mapping[str, Arrays] = field(default_factory=dict)  # what else came, by record name; read-only views


@dataclass(frozen=True)
class SetAside:
    """A reply that is not used, and why."""

    node_id: int
    reason: str


@dataclass(frozen=True)
class Cohort:
    """The usable replies of a round, in the order of client ids, and those set aside."""

    replies: tuple[Reply, ...]
    set_aside: tuple[SetAside, ...] = ()
    halves: tuple[str, ...] = ()  # what these clients were asked for beside training

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
        """What the clients report, put together as `fedstride/metrics.py` says; only what all of them report."""
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
        """Ids of the clients that did not say that they have done a half, by half; only where there are some."""
        missing = {
            half: [reply.client_id for reply in self.replies if reply.metrics.get(wire.done(half)) != 1]
            for half in self.halves
        }
        return {half: clients for half, clients in missing.items() if clients}

    def counts(self) -> dict[str, Any]:
        """How many replies are not used, and how many did not do all that was asked, for a round's metrics."""
        counts: dict[str, Any] = {f"{SCREEN}set_aside": len(self.set_aside)}
        if self.halves:
            counts[f"{SCREEN}not_done"] = len({client for each in self.not_done.values() for client in each})
        return counts

    def beside(self, record: str) -> list[Arrays]:
        """What came beside the models in the record of this name, in order."""
        return [reply.beside[record] for reply in self.replies]

    def common_metrics(self) -> list[str]:
        """The metrics that every client reports with one form (a number, or a list of one length).

        What the screen itself says of a round is not for clients to say.
        """
        first = (key for key in self.replies[0].metrics if not key.startswith(SCREEN))
        return [key for key in first if len({_form(reply.metrics.get(key)) for reply in self.replies}) == 1]


class Accepted(list[Message]):
    """The messages of a cohort that has passed the screen, for the strategy inside a wrapper.

    Flower's own strategies see plain messages whose arrays and metrics agree in their keys; ours find
    the cohort and need not screen again.
    """

    def __init__(self, cohort: Cohort) -> None:
        common = cohort.common_metrics() if cohort.replies else []
        super().__init__(_clean(reply, common, cohort.replies[0]) for reply in cohort.replies)
        self.cohort = cohort


def screen(
    messages: Iterable[Message],
    sent: Arrays,
    *,
    weighted_by_key: str = wire.NUM_EXAMPLES,
    screening: Screening | None = None,
    expected: Expected | None = None,
) -> Cohort:
    """Sort the replies of a round into usable ones, ordered by client id, and those set aside.

    `sent` is the model that was sent, `expected` what was asked for beside it. Set aside is a reply with an
    error, not exactly one model, one metric record and the expected records, missing or extra arrays, another
    shape or dtype, NaN or infinity, a bad count, or an update (or expected record) longer than
    `screening.factor` times the median length of the round (not where that is 0).
    Never raises for what a client sent.
    """
    if isinstance(messages, Accepted):
        return messages.cohort
    usable: list[Reply] = []
    aside: list[SetAside] = []
    layout = Layout.of(sent)
    screening, expected = screening or Screening(), expected or Expected()
    for message in messages:
        node_id = message.metadata.src_node_id
        try:
            usable.append(_read(message, sent, layout, weighted_by_key, expected))
        except ReplyError as error:
            aside.append(SetAside(node_id, str(error)))
    if screening.factor is not None:
        for record in (None, *expected.returns):
            usable, far = _split_by_length(usable, screening.factor, record)
            aside += far
    usable.sort(key=lambda reply: (reply.client_id, reply.node_id))
    return Cohort(tuple(usable), tuple(sorted(aside, key=lambda item: item.node_id)), expected.halves)


def with_model(reply: Reply, sent: Arrays, model: Arrays, weighted_by_key: str) -> Reply:
    """The reply as if the client had sent this model, had one example, and said nothing else."""
    metrics: dict[str, Any] = {weighted_by_key: 1, wire.CLIENT_ID: reply.client_id}
    message = _shallow(reply.message)
    metric_key = next(iter(reply.message.content.metric_records))
    message.content = RecordDict({_model_key(reply): to_record(model), metric_key: MetricRecord(metrics)})
    length = norm(difference(model, sent, Layout.of(sent).parameters))
    changed: dict[str, Any] = {"num_examples": 1.0, "model": model, "metrics": metrics, "length": length}
    return replace(reply, **changed, message=message, beside={})


def screen_metrics(messages: Iterable[Message], weighted_by_key: str) -> list[Message]:
    """Copies of the replies to an evaluation that can be used, with the metrics that all of them report."""
    usable: list[Reply] = []
    for message in messages:
        try:
            if message.has_error() or not message.has_content():
                continue
            metrics = _only(message.content.metric_records, "MetricRecord")
            count = _count(metrics, weighted_by_key)
        except ReplyError:
            continue
        node_id = message.metadata.src_node_id
        client_id = metrics.get(wire.CLIENT_ID)
        known = client_id if isinstance(client_id, int) else node_id
        usable.append(Reply(node_id, known, count, {}, metrics, 0.0, message))
    usable.sort(key=lambda reply: (reply.client_id, reply.node_id))
    cohort = Cohort(tuple(usable))
    common = cohort.common_metrics() if usable else []
    copies = []
    for reply in usable:
        message = _shallow(reply.message)
        message.content = RecordDict({wire.METRICS: MetricRecord({key: reply.metrics[key] for key in common})})
        copies.append(message)
    return copies


def _read(message: Message, sent: Arrays, layout: Layout, weighted_by_key: str, expected: Expected) -> Reply:
    if message.has_error():
        raise ReplyError(f"the client failed (code {message.error.code}): {last_line(message.error.reason)}")
    if not message.has_content():
        raise ReplyError("an empty reply")
    content = message.content
    metrics = _only(content.metric_records, "MetricRecord")
    count = _count(metrics, weighted_by_key)
    records = dict(content.array_records)
    missing = [name for name in expected.returns if name not in records]
    if missing:
        raise ReplyError(f"no record {missing[0]!r}, which was asked for; it has {sorted(records)}")
    beside = {name: _arrays(records.pop(name), like) for name, like in expected.returns.items()}
    for name, arrays in beside.items():
        _finite_length(arrays, None, Layout.of(arrays), f"{name}: ")
    model = _arrays(_only(records, "ArrayRecord"), sent)
    client_id = metrics.get(wire.CLIENT_ID, message.metadata.src_node_id)
    if not isinstance(client_id, int):
        raise ReplyError(f"{wire.CLIENT_ID} = {client_id!r} is not a whole number")
    return Reply(
        node_id=message.metadata.src_node_id,
        client_id=client_id,
        num_examples=count,
        model=model,
        metrics=metrics,
        length=_finite_length(model, sent, layout),
        message=message,
        beside=beside,
    )


def _only(records: Mapping[str, Any], kind: str) -> Any:
    if len(records) != 1:
        raise ReplyError(f"{len(records)} records of type {kind}, expected one")
    return next(iter(records.values()))


def _count(metrics: MetricRecord, key: str) -> float:
    count = metrics.get(key)
    if isinstance(count, bool) or not isinstance(count, (int, float)):
        raise ReplyError(f"{key} = {count!r}, expected a number of examples")
    if not 0 < count <= MAX_EXAMPLES:  # NaN fails too
        raise ReplyError(
            f"{key} = {_real(count):.6g}, expected more than 0 and at most {MAX_EXAMPLES:.0e} examples"
        )
    return count


def _arrays(record: ArrayRecord, sent: Arrays) -> Arrays:
    """Views of a record, in the order of `sent`, whose names, shapes and dtypes it must have."""
    missing = [name for name in sent if name not in record]
    extra = [name for name in record if name not in sent]
    if missing or extra:
        raise ReplyError(f"arrays missing: {missing[:5]}, not asked for: {extra[:5]}")
    try:
        received = views(record)
    except Exception as error:  # whatever a client put into the bytes
        raise ReplyError(f"arrays that cannot be read: {error}") from error
    for name, array in sent.items():
        got = received[name]
        if got.shape != array.shape or got.dtype != array.dtype:
            raise ReplyError(
                f"{name!r} is {got.dtype}{tuple(got.shape)}, the model has {array.dtype}{tuple(array.shape)}; "
                "both sides must build the same model"
            )
    return {name: received[name] for name in sent}


def _finite_length(model: Arrays, sent: Arrays | None, layout: Layout, where: str = "") -> float:
    """||w_k - w||; the sum of squares is finite exactly where every parameter is (overflow apart)."""
    total = 0.0
    for name in layout.parameters:
        with np.errstate(all="ignore"):
            array = float64(model[name])
            square = squared_norm(array if sent is None else array - float64(sent[name]))
        if not math.isfinite(square):
            raise ReplyError(f"{where}{name!r} holds NaN, infinity or absurd values")
        total += square
    for name in layout.buffers:
        xp = array_namespace(model[name])
        if is_floating(model[name]) and not bool(xp.all(xp.isfinite(model[name]))):
            raise ReplyError(f"{where}{name!r} holds NaN or infinity")
    if not math.isfinite(total):
        raise ReplyError(f"{where}the update is absurdly long")
    return math.sqrt(total)


def _split_by_length(
    replies: list[Reply], factor: float, record: str | None
) -> tuple[list[Reply], list[SetAside]]:
    """Replies whose update, or record of this name, is not too long beside the others', and those where it is."""
    lengths = [reply.length if record is None else norm(reply.beside[record]) for reply in replies]
    middle = median(lengths) if lengths else 0.0
    if middle == 0.0:
        return replies, []
    what = "an update" if record is None else f"a record {record!r}"
    near = [reply for reply, length in zip(replies, lengths, strict=True) if length <= factor * middle]
    far = [
        SetAside(
            reply.node_id,
            f"{what} of norm {length:.4g}, more than {factor:g} times the round's median {middle:.4g}",
        )
        for reply, length in zip(replies, lengths, strict=True)
        if length > factor * middle
    ]
    return near, far


def _form(value: Any) -> Any:
    """What two values must share to be averaged."""
    if value is None:
        return object()
    return len(value) if isinstance(value, list) else -1


def _combine(how: str, values: Sequence[float], shares: Sequence[float]) -> float:
    if how == "min":
        return _real(min(values))
    if how == "max":
        return _real(max(values))
    # not fsum, which raises at inf - inf
    return sum(share * _real(value) for share, value in zip(shares, values, strict=True))


def _real(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # an int of more than 1024 bits
        return math.inf if value > 0 else -math.inf


def _clean(reply: Reply, metrics: Sequence[str], first: Reply) -> Message:
    """A copy of the message that a strategy may take apart: its own records, one set of keys.

    The arrays' order is that of the sent model, whatever the client's was.
    """
    record = reply.message.content.array_records[_model_key(reply)]
    key = _model_key(first)
    metric_key = next(iter(first.message.content.metric_records))
    message = _shallow(reply.message)
    message.content = RecordDict(
        {
            key: ArrayRecord({name: record[name] for name in reply.model}),
            metric_key: MetricRecord({name: reply.metrics[name] for name in metrics}),
        }
    )
    return message


def _model_key(reply: Reply) -> str:
    """The name of the record that holds the model."""
    return next(name for name in reply.message.content.array_records if name not in reply.beside)


def _shallow(message: Message) -> Message:
    copy = object.__new__(Message)
    copy.__dict__.update(message.__dict__)
    return copy
