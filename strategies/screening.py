"""Screening: which replies of a round are valid, and in which order they are used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median
from typing import Any

import numpy as np
from array_api_compat import array_namespace
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from fedstride import wire
from fedstride.arrays import Arrays, Layout, float64, is_floating, norm, squared_norm, views
from fedstride.errors import ReplyError, last_line

from .cohort import Accepted, Cohort, Expected, Rejected, Reply, real, shallow
from .limits import Screening

MAX_EXAMPLES = 10**12
"""A client that claims more examples than this is not believed."""


def screen(
    messages: Iterable[Message],
    sent: Arrays,
    *,
    weighted_by_key: str = wire.NUM_EXAMPLES,
    screening: Screening | None = None,
    expected: Expected | None = None,
) -> Cohort:
    """Divide the replies of a round into valid ones, in the order of client ids, and rejected ones.

    `sent` is the model that was sent, `expected` what clients must return in addition to it. A reply is
    rejected if it is an error; has not exactly one model, one metric record and the expected records; has
    missing or additional arrays, another shape or dtype, NaN or infinity, or an invalid number of examples; or
    if its update (or an expected record) is longer than `screening.factor` times the round's median length
    (unless the median is 0). Never raises an error because of what a client sent.
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
    if screening.factor is not None:
        for record in (None, *expected.returns):
            valid, far = _split_by_length(valid, screening.factor, record)
            rejected += far
    valid.sort(key=lambda reply: (reply.client_id, reply.node_id))
    return Cohort(tuple(valid), tuple(sorted(rejected, key=lambda item: item.node_id)), expected.halves)


def screen_metrics(messages: Iterable[Message], weighted_by_key: str) -> list[Message]:
    """Copies of the valid replies to an evaluation, with the metrics that all of them report."""
    valid: list[Reply] = []
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
        valid.append(Reply(node_id, known, count, {}, metrics, 0.0, message))
    valid.sort(key=lambda reply: (reply.client_id, reply.node_id))
    cohort = Cohort(tuple(valid))
    common = cohort.common_metrics() if valid else []
    copies = []
    for reply in valid:
        message = shallow(reply.message)
        message.content = RecordDict({wire.METRICS: MetricRecord({key: reply.metrics[key] for key in common})})
        copies.append(message)
    return copies


def _read(message: Message, sent: Arrays, layout: Layout, weighted_by_key: str, expected: Expected) -> Reply:
    if message.has_error():
        raise ReplyError(f"the client failed (code {message.error.code}): {last_line(message.error.reason)}")
    if not message.has_content():
        raise ReplyError("the reply has no content")
    content = message.content
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


def _split_by_length(
    replies: list[Reply], factor: float, record: str | None
) -> tuple[list[Reply], list[Rejected]]:
    """The replies whose update (or record of this name) is not too long compared with the others, and the rest."""
    lengths = [reply.length if record is None else norm(reply.extras[record]) for reply in replies]
    middle = median(lengths) if lengths else 0.0
    if middle == 0.0:
        return replies, []
    what = "an update" if record is None else f"a record {record!r}"
    near = [reply for reply, length in zip(replies, lengths, strict=True) if length <= factor * middle]
    far = [
        Rejected(
            reply.node_id,
            f"{what} of norm {length:.4g}, more than {factor:g} times the round's median {middle:.4g}",
        )
        for reply, length in zip(replies, lengths, strict=True)
        if length > factor * middle
    ]
    return near, far
