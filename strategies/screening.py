"""Screening: which replies of a round are valid, and in which order they are used."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from array_api_compat import array_namespace
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from fedstride import wire
from fedstride.arrays import (
    Arrays,
    Layout,
    difference,
    float64,
    is_floating,
    like,
    norm,
    squared_norm,
    to_record,
    views,
)
from fedstride.errors import ReplyError, last_line

from .cohort import Accepted, Cohort, Expected, Rejected, Reply, model_key, shallow
from .figures import real
from .limits import Screening
from .outliers import capped, quantile, reference

MAX_EXAMPLES = 10**12
"""A client that claims more examples than this is not believed."""


MODEL, BUFFERS = "the model", "the buffers"
ROUNDS = "rounds"
"""Keys of what is learnt: two reference lengths, and the number of rounds."""

EARLY_ROUNDS = 5
"""Rounds with `screening.early_factor`. Later, a few honest clients make steps many times longer than others."""


def screen(
    messages: Iterable[Message],
    sent: Arrays,
    *,
    weighted_by_key: str = wire.NUM_EXAMPLES,
    screening: Screening | None = None,
    expected: Expected | None = None,
    learnt: Mapping[str, float] | None = None,
) -> Cohort:
    """Divide the replies of a round into valid ones, in the order of client ids, and rejected ones.

    `sent` is the model that was sent, `expected` what clients must return in addition to it, `learnt` the
    `learnt` of the cohort of the round before. A reply is rejected if it is an error; has not exactly one model,
    one metric record and the expected records; has missing or additional arrays, another shape or dtype, NaN or
    infinity, or an invalid number of examples; or if its update (of the parameters, of the buffers, or of an
    expected record) is longer than `screening.factor` (at first `early_factor`) times the reference
    length (`outliers.py`). With `screening.clip` such an update is shortened instead, and with
    `screening.max_share` large counts are lowered. Never raises an error because of what a client sent.
    """
    if isinstance(messages, Accepted):
        return messages.cohort
    valid: list[Reply] = []
    rejected: list[Rejected] = []
    layout = Layout.of(sent)
    screening, expected = screening or Screening(), expected or Expected()
    for message in messages:
        node_id = message.metadata.src_node_id
        try:
            valid.append(_read(message, sent, layout, weighted_by_key, expected))
        except ReplyError as error:
            rejected.append(Rejected(node_id, str(error)))
    valid, far, references = _bound_lengths(valid, _parts(sent, layout, expected), screening, learnt or {})
    rejected += far
    if screening.max_share is not None and valid:
        valid = _bound_shares(valid, screening.max_share, weighted_by_key)
    valid.sort(key=lambda reply: (reply.client_id, reply.node_id))
    rejected.sort(key=lambda item: item.node_id)
    return Cohort(tuple(valid), tuple(rejected), expected.halves, references, weighted_by_key)


def screen_metrics(
    messages: Iterable[Message],
    weighted_by_key: str,
    trained: Cohort | None,
    max_share: float | None = None,
) -> Cohort:
    """Divide the replies to an evaluation into valid ones, in the order of client ids, and rejected ones.

    `trained`: the replies to the round's training. A client has at most the weight that it had there: a number of
    examples that grows for the evaluation is not believed. `max_share`: see `Screening`.
    """
    if isinstance(messages, Accepted):
        return messages.cohort
    known = {} if trained is None else {reply.client_id: reply.num_examples for reply in trained.replies}
    valid: list[Reply] = []
    rejected: list[Rejected] = []
    for message in messages:
        node_id = message.metadata.src_node_id
        try:
            metrics = _only(_content(message).metric_records, "MetricRecord")
            count = _count(metrics, weighted_by_key)
        except ReplyError as error:
            rejected.append(Rejected(node_id, str(error)))
            continue
        reported_id = metrics.get(wire.CLIENT_ID)
        client_id = reported_id if isinstance(reported_id, int) else node_id
        count = min(count, known.get(client_id, count))
        valid.append(Reply(node_id, client_id, count, {}, metrics, 0.0, message))
    if max_share is not None and valid:
        valid = _bound_shares(valid, max_share, weighted_by_key)
    valid.sort(key=lambda reply: (reply.client_id, reply.node_id))
    rejected.sort(key=lambda item: item.node_id)
    return Cohort(tuple(valid), tuple(rejected), count_key=weighted_by_key)


def _read(message: Message, sent: Arrays, layout: Layout, weighted_by_key: str, expected: Expected) -> Reply:
    content = _content(message)
    metrics = _only(content.metric_records, "MetricRecord")
    count = _count(metrics, weighted_by_key)
    records = dict(content.array_records)
    missing = [name for name in expected.returns if name not in records]
    if missing:
        raise ReplyError(f"the requested record {missing[0]!r} is missing; the reply has {sorted(records)}")
    extras = {name: _arrays(records.pop(name), like) for name, like in expected.returns.items()}
    for name, arrays in extras.items():
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
        extras=extras,
    )


def _content(message: Message) -> RecordDict:
    if message.has_error() and message.error.code == wire.UNUSABLE:
        raise ReplyError(str(message.error.reason))
    if message.has_error():
        raise ReplyError(f"the client failed (code {message.error.code}): {last_line(message.error.reason)}")
    if not message.has_content():
        raise ReplyError("the reply has no content")
    return message.content


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
            f"{key} = {real(count):.6g}, expected more than 0 and at most {MAX_EXAMPLES:.0e} examples"
        )
    return count


def _arrays(record: ArrayRecord, sent: Arrays) -> Arrays:
    """Views of a record, in the order of `sent`, whose names, shapes and dtypes it must have."""
    missing = [name for name in sent if name not in record]
    extra = [name for name in record if name not in sent]
    if missing or extra:
        raise ReplyError(f"missing arrays: {missing[:5]}, unexpected arrays: {extra[:5]}")
    try:
        received = views(record)
    except Exception as error:  # the client decides what is in the bytes
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
    """||w_k - w||; the sum of squares is finite only if every parameter is."""
    total = 0.0
    for name in layout.parameters:
        with np.errstate(all="ignore"):
            array = float64(model[name])
            square = squared_norm(array if sent is None else array - float64(sent[name]))
        if not math.isfinite(square):
            raise ReplyError(f"{where}{name!r} contains NaN, infinity or values too large to square")
        total += square
    for name in layout.buffers:
        xp = array_namespace(model[name])
        if is_floating(model[name]) and not bool(xp.all(xp.isfinite(model[name]))):
            raise ReplyError(f"{where}{name!r} contains NaN or infinity")
    if not math.isfinite(total):
        raise ReplyError(f"{where}the update is too long: its norm is not finite")
    return math.sqrt(total)


# ---------------------------------------------------------------- lengths


class _Part(NamedTuple):
    """A part of a reply whose length is bounded for itself."""

    name: str  # the key of its reference length
    what: str  # in a reason
    scale: float  # the norm of what was sent, 0 if the part is itself a change
    length: Callable[[Reply], float]
    shorten: Callable[[Reply, float], Reply]  # by a factor


def _parts(sent: Arrays, layout: Layout, expected: Expected) -> list[_Part]:
    """The parameters, the floating-point buffers, and each expected record."""

    def scale_of(names: Sequence[str]) -> float:
        return norm({name: sent[name] for name in names})

    def shorten(names: Sequence[str]) -> Callable[[Reply, float], Reply]:
        return lambda reply, factor: _with_shorter_update(reply, sent, names, factor)

    parts = [_Part(MODEL, "an update", scale_of(layout.parameters), _length_of_update, shorten(layout.parameters))]
    buffers = [name for name in layout.buffers if is_floating(sent[name])]
    if buffers:

        def length_of_buffers(reply: Reply) -> float:
            return norm(difference(reply.model, sent, buffers))

        parts.append(
            _Part(BUFFERS, "a change of the buffers", scale_of(buffers), length_of_buffers, shorten(buffers))
        )
    return parts + [_record_part(record) for record in expected.returns]


def _length_of_update(reply: Reply) -> float:
    return reply.length


def _record_part(record: str) -> _Part:
    def length(reply: Reply) -> float:
        return norm(reply.extras[record])

    def shorten(reply: Reply, factor: float) -> Reply:
        arrays = {name: like(factor * float64(array), array) for name, array in reply.extras[record].items()}
        return replace(reply, extras={**reply.extras, record: arrays})

    return _Part(record, f"a record {record!r}", 0.0, length, shorten)


def _bound_lengths(
    replies: list[Reply], parts: Sequence[_Part], screening: Screening, learnt: Mapping[str, float]
) -> tuple[list[Reply], list[Rejected], dict[str, float]]:
    """The replies that are not too long in any part, or were shortened; the others; and what was learnt."""
    if not replies or (screening.factor is None and screening.clip is None):
        return replies, [], dict(learnt)
    rounds = learnt.get(ROUNDS, 0.0)
    factor = _factor(screening, rounds)
    bounds = [
        _bound(part, [part.length(reply) for reply in replies], factor, screening.clip, learnt) for part in parts
    ]
    faults = [next((fault for each in bounds if (fault := each.fault(i))), None) for i in range(len(replies))]
    inside = [i for i, fault in enumerate(faults) if fault is None]
    # Learnt from replies within the bounds, so that a rejected one leaves no trace. If there is none, the
    # references grow, because what all clients do is not the attack of one.
    references = {**learnt, **{each.part.name: each.learnt(inside) for each in bounds if each.normal}}
    if len(inside) >= screening.quorum:
        references[ROUNDS] = rounds + 1.0
    if screening.clip is not None:
        return [_shortened(reply, i, bounds) for i, reply in enumerate(replies)], [], references
    far = [Rejected(r.node_id, fault) for r, fault in zip(replies, faults, strict=True) if fault is not None]
    return [replies[i] for i in inside], far, references


@dataclass(frozen=True)
class _Bound:
    """How long one part may be in this round, and how long it is in each reply."""

    part: _Part
    lengths: list[float]
    before: float | None  # the reference length before the round
    normal: float | None  # and in this round; None if it is not known
    limit: float  # inf if there is none

    def fault(self, i: int) -> str | None:
        """Why reply number i is too long; None if it is not."""
        if self.normal is None or self.lengths[i] <= self.limit:
            return None
        return (
            f"{self.part.what} of norm {self.lengths[i]:.4g}, more than {self.limit / self.normal:g} times "
            f"{self.normal:.4g}, the largest median of a round so far (screening.factor)"
        )

    def learnt(self, inside: Sequence[int]) -> float:
        """The reference length after the round, from the replies with these numbers."""
        lengths = [self.lengths[i] for i in inside]
        return (reference(lengths, self.before, self.part.scale) if lengths else None) or self.normal or 0.0


def _factor(screening: Screening, rounds: float) -> float | None:
    """The factor of this round, after this number of rounds."""
    early = rounds < EARLY_ROUNDS and screening.early_factor is not None
    if screening.factor is None or not early:
        return screening.factor
    return screening.early_factor


def _bound(
    part: _Part, lengths: list[float], factor: float | None, clip: float | None, learnt: Mapping[str, float]
) -> _Bound:
    before = learnt.get(part.name)
    normal = reference(lengths, before, part.scale)
    limit = math.inf if factor is None or normal is None else factor * normal
    if clip is not None:
        limit = min(limit, quantile(lengths, clip))
    return _Bound(part, lengths, before, normal, limit)


def _shortened(reply: Reply, i: int, bounds: Sequence[_Bound]) -> Reply:
    """Reply number i with every part shortened to its limit."""
    for each in bounds:
        length = each.lengths[i]
        if length > each.limit:
            note = f"{each.part.what} of norm {length:.4g} was shortened to {each.limit:.4g} (screening.clip)"
            reply = replace(each.part.shorten(reply, each.limit / length), notes=(*reply.notes, note))
    return reply


def _with_shorter_update(reply: Reply, sent: Arrays, names: Sequence[str], factor: float) -> Reply:
    """The reply with w + factor (w_k - w) in these arrays, in the message that other strategies see too."""
    shorter = {
        name: like(float64(sent[name]) + factor * (float64(reply.model[name]) - float64(sent[name])), sent[name])
        for name in names
    }
    model = {**reply.model, **shorter}
    message = shallow(reply.message)
    message.content = RecordDict({**reply.message.content, model_key(reply): to_record(model)})
    parameters = Layout.of(sent).parameters
    return replace(reply, model=model, message=message, length=norm(difference(model, sent, parameters)))


# ---------------------------------------------------------------- shares


def _bound_shares(replies: list[Reply], max_share: float, key: str) -> list[Reply]:
    """The replies with counts of examples of which none is more than `max_share` of their sum."""
    counts = capped([reply.num_examples for reply in replies], max_share)
    return [
        reply if count == reply.num_examples else _with_count(reply, count, key)
        for reply, count in zip(replies, counts, strict=True)
    ]


def _with_count(reply: Reply, count: float, key: str) -> Reply:
    note = f"{reply.num_examples:.6g} examples count as {count:.6g} (screening.max_share)"
    metrics = {**reply.metrics, key: count}
    return replace(reply, num_examples=count, metrics=metrics, notes=(*reply.notes, note))
