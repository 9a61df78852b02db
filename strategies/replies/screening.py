"""Screening: which replies of a round are valid, and in which order they are used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict

from fedstride.arrays.finite import first_changed, first_not_finite, held_of, taken_out
from fedstride.arrays.float64_sums import total
from fedstride.arrays.named import Arrays, Layout
from fedstride.arrays.on_device import device_in, placed, values
from fedstride.errors import ReplyError, reason_of
from fedstride.messages import wire
from fedstride.messages.records import array_records, metric_records
from fedstride.plain_numbers import is_number

from ..sums.blocks import difference, norm
from ..sums.fast_updates import KnownUpdates, known_updates
from ..sums.means import zeros_like
from .cohort import Cohort, Expected, Rejected, Reply, shares_of, weights_of
from .figures import real
from .length_bounds import capped
from .screening_settings import Screening
from .update_lengths import bound_lengths

MIN_EXAMPLES, MAX_EXAMPLES = 1e-9, 10**12
"""A client that claims another number of examples is not believed; so no share of a sum is rounded to 0."""

MORE_THAN_IT_HAS = "more than it can have, by its number of training examples in the roll call"


def screen(
    messages: Iterable[Message],
    sent: Arrays,
    *,
    weighted_by_key: str = wire.NUM_EXAMPLES,
    screening: Screening | None = None,
    expected: Expected | None = None,
    learnt: Mapping[str, float] | None = None,
    summed_by: str | None = None,
    zeroes: bool = False,
) -> Cohort:
    """Divide the replies of a round into valid ones, in the order of client ids, and rejected ones.

    `sent` is the model that was sent, `expected` what clients must return in addition to it, `learnt` the
    `learnt` of the cohort of the round before. A reply is rejected if it is an error; has not exactly one model,
    one metric record and the expected records and numbers; has missing or additional arrays, another shape or
    dtype, NaN or infinity that is not in the model that was sent, or an invalid number of examples; or if its
    update (of the parameters, of the buffers, or of an expected record) is longer than `screening.factor` times
    the reference length, or after several shorter ones of the same client than `screening.burst` times
    (`update_lengths.py`). With `screening.clip` such an update is shortened instead, and with
    `screening.max_share` large counts are lowered. Never raises an error because of what a client sent.

    `summed_by`: the weighting with which the rule will sum the updates, None if it will not. The sum is then made
    while the updates are measured; if a reply is rejected after that, it is made again when the rule needs it.
    With `zeroes`, an update that is not finite counts as zero and is not rejected.
    """
    valid: list[Reply] = []
    rejected: list[Rejected] = []
    screening, expected = screening or Screening(), (expected or Expected()).where(sent)
    for message in messages:
        node_id = message.metadata.src_node_id
        try:
            valid.append(_read(message, sent, weighted_by_key, expected, zeroes=zeroes))
        except ReplyError as error:
            rejected.append(Rejected(node_id, str(error)))
    valid.sort(key=lambda reply: (reply.client_id, reply.node_id))
    if zeroes:
        valid = [reply if _is_finite(reply, sent) else _with_zero(reply, sent) for reply in valid]
    read = known_updates(sent, [reply.model for reply in valid])
    if summed_by is not None and valid:
        counts = capped([reply.num_examples for reply in valid], screening.max_share or 1.0)
        read.read(shares_of(weights_of(counts, summed_by)))
    records = {
        name: known_updates(zeros_like(like), [reply.extras[name] for reply in valid])
        for name, like in expected.returns.items()
    }
    valid, not_finite = _with_lengths(valid, read, records)
    valid, far, after = bound_lengths(valid, sent, expected, screening, learnt or {})
    rejected += not_finite + far
    if screening.max_share is not None and valid:
        valid = _bound_shares(valid, screening.max_share, weighted_by_key)
    rejected.sort(key=lambda item: item.node_id)
    accepted = read.among([reply.model for reply in valid])  # a rejected reply is kept no longer
    return Cohort(tuple(valid), tuple(rejected), expected.halves, after, weighted_by_key, accepted)


def screen_metrics(
    messages: Iterable[Message],
    weighted_by_key: str,
    max_share: float | None = None,
    most: Mapping[int, float] = MappingProxyType({}),
) -> Cohort:
    """Divide the replies to an evaluation into valid ones, in the order of client ids, and rejected ones.

    `max_share`: see `Screening`. `most`: the most examples that a client can have measured, by client id; larger
    numbers of these clients are lowered to it, with a note. Those of other clients stay as they are.
    """
    valid: list[Reply] = []
    rejected: list[Rejected] = []
    for message in messages:
        node_id = message.metadata.src_node_id
        try:
            metrics = _only(metric_records(_content(message)), "MetricRecord")
            count = _count(metrics, weighted_by_key)
        except ReplyError as error:
            rejected.append(Rejected(node_id, str(error)))
            continue
        reported_id = metrics.get(wire.CLIENT_ID)
        client_id = reported_id if isinstance(reported_id, int) else node_id
        reply = Reply(node_id, client_id, count, {}, metrics, 0.0, message)
        bound = most.get(client_id, count)
        valid.append(reply if count <= bound else _with_count(reply, bound, weighted_by_key, MORE_THAN_IT_HAS))
    if max_share is not None and valid:
        valid = _bound_shares(valid, max_share, weighted_by_key)
    valid.sort(key=lambda reply: (reply.client_id, reply.node_id))
    rejected.sort(key=lambda item: item.node_id)
    return Cohort(tuple(valid), tuple(rejected), count_key=weighted_by_key)


def _read(message: Message, sent: Arrays, weighted_by_key: str, expected: Expected, *, zeroes: bool) -> Reply:
    """The reply, without its length, which the values of its model decide.

    With `zeroes`, other values where the sent model is not finite do not count.
    """
    content = _content(message)
    metrics = _only(metric_records(content), "MetricRecord")
    count = _count(metrics, weighted_by_key)
    records = array_records(content)
    missing = [name for name in expected.returns if name not in records]
    if missing:
        raise ReplyError(f"the requested record {missing[0]!r} is missing; the reply has {sorted(records)}")
    extras = {name: _arrays(records.pop(name), like) for name, like in expected.returns.items()}
    model = _arrays(_only(records, "ArrayRecord"), sent, may_change=zeroes)
    client_id = metrics.get(wire.CLIENT_ID, message.metadata.src_node_id)
    if not isinstance(client_id, int):
        raise ReplyError(f"{wire.CLIENT_ID} = {client_id!r} is not a whole number")
    for name, number in expected.numbers.items():
        if fault := number.fault(metrics.get(name), client_id):
            raise ReplyError(f"the requested number {name!r} {fault}")
    return Reply(
        node_id=message.metadata.src_node_id,
        client_id=client_id,
        num_examples=count,
        model=model,
        metrics=metrics,
        length=math.nan,
        message=message,
        extras=extras,
    )


def _content(message: Message) -> RecordDict:
    if message.has_error() and message.error.code == wire.UNUSABLE:
        raise ReplyError(str(message.error.reason))
    if message.has_error():
        raise ReplyError(f"the client failed: {reason_of(message.error.code, message.error.reason)}")
    if not message.has_content():
        raise ReplyError("the reply has no content")
    return message.content


def _only(records: Mapping[str, Any], kind: str) -> Any:
    if len(records) != 1:
        raise ReplyError(f"{len(records)} records of type {kind}, expected one")
    return next(iter(records.values()))


def _count(metrics: MetricRecord, key: str) -> float:
    count = metrics.get(key)
    if not is_number(count):
        raise ReplyError(f"{key} = {count!r}, expected a number of examples")
    if not MIN_EXAMPLES <= count <= MAX_EXAMPLES:  # NaN fails too
        raise ReplyError(f"{key} = {real(count):.6g}, expected {MIN_EXAMPLES:.0e} to {MAX_EXAMPLES:.0e} examples")
    return count


def _arrays(record: ArrayRecord, sent: Arrays, *, may_change: bool = False) -> Arrays:
    """A record's arrays where `sent` is, in its order; they must have its names, shapes and dtypes.

    And, unless they `may_change`, its values where they are not finite; these are taken out.
    """
    missing = [name for name in sent if name not in record]
    extra = [name for name in record if name not in sent]
    if missing or extra:
        raise ReplyError(f"missing arrays: {missing[:5]}, unexpected arrays: {extra[:5]}")
    try:
        received = placed(values(record), device_in(sent.values()))
    except Exception as error:  # the client decides what is in the bytes
        raise ReplyError(f"arrays that cannot be read: {error}") from error
    for name, array in sent.items():
        got = received[name]
        if got.shape != array.shape or got.dtype != array.dtype:
            raise ReplyError(
                f"{name!r} is {got.dtype}{tuple(got.shape)}, the model has {array.dtype}{tuple(array.shape)}; "
                "both sides must build the same model"
            )
    held = held_of(sent)
    other = first_changed(received, held)
    if other is not None and not may_change:
        raise ReplyError(
            f"{other!r} has other values where the model that was sent is not finite; such a value must come back "
            "as it is"
        )
    return taken_out({name: received[name] for name in sent}, held)


def _is_finite(reply: Reply, sent: Arrays) -> bool:
    """Whether all values of the model, and the norm of the update, are finite."""
    if first_not_finite(reply.model) is not None:
        return False
    with np.errstate(over="ignore"):
        return math.isfinite(norm(difference(reply.model, sent, Layout.of(sent).parameters)))


def _with_zero(reply: Reply, sent: Arrays) -> Reply:
    """The reply as if the client had sent the model back."""
    return replace(reply, model=dict(sent), notes=(*reply.notes, "its update is not finite, and counts as zero"))


def _with_lengths(
    replies: list[Reply], read: KnownUpdates, records: Mapping[str, KnownUpdates]
) -> tuple[list[Reply], list[Rejected]]:
    """The replies with their lengths, and those whose values are not finite. A record's length is its norm."""
    good: list[Reply] = []
    rejected: list[Rejected] = []
    for k, reply in enumerate(replies):
        try:
            extra_lengths = {name: _record_length(record, k, f"{name}: ") for name, record in records.items()}
            length = _checked_length(read, k)
            good.append(replace(reply, length=length, extra_lengths=extra_lengths))
        except ReplyError as error:
            rejected.append(Rejected(reply.node_id, str(error)))
    return good, rejected


def _checked_length(read: KnownUpdates, k: int, where: str = "") -> float:
    """The length of the update of client number k; its parameters and its other arrays must be finite."""
    length = _length(read.of_client(k), where)
    name = read.not_finite(k)
    if name is not None:
        raise ReplyError(f"{where}{name!r} contains NaN or infinity")
    return length


def _record_length(read: KnownUpdates, k: int, where: str) -> float:
    """The norm of all arrays of client number k, also of those that would be buffers in a model."""
    others = {name: array for name, array in read.models[k].items() if name not in read.names}
    return math.hypot(_checked_length(read, k, where), norm(others))


def _length(squares: Mapping[str, float], where: str = "") -> float:
    """The norm of arrays with these squared norms; the square is finite only if every value is."""
    for name, square in squares.items():
        if not math.isfinite(square):
            raise ReplyError(f"{where}{name!r} contains NaN, infinity or values too large to square")
    square = total(squares.values())
    if not math.isfinite(square):
        raise ReplyError(f"{where}the update is too long: its norm is not finite")
    return math.sqrt(square)


# ---------------------------------------------------------------- shares


def _bound_shares(replies: list[Reply], max_share: float, key: str) -> list[Reply]:
    """The replies with counts of examples of which none is more than `max_share` of their sum."""
    counts = capped([reply.num_examples for reply in replies], max_share)
    return [
        reply if count == reply.num_examples else _with_count(reply, count, key, "screening.max_share")
        for reply, count in zip(replies, counts, strict=True)
    ]


def _with_count(reply: Reply, count: float, key: str, why: str) -> Reply:
    note = f"{reply.num_examples:.6g} examples count as {count:.6g} ({why})"
    metrics = {**reply.metrics, key: count}
    return replace(reply, num_examples=count, metrics=metrics, notes=(*reply.notes, note))
