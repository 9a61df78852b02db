"""Messages made of replies: plain ones for a strategy that is not ours, and replies with other models."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict

from fedstride.arrays.finite import held_of, put_back
from fedstride.arrays.named import Arrays, Layout
from fedstride.arrays.on_device import plain, record_of
from fedstride.messages import wire
from fedstride.messages.records import array_records, metric_records

from ..sums.blocks import difference, norm
from .cohort import Cohort, Reply


def messages_of(
    cohort: Cohort, kept: Collection[str] = (), read: Collection[str] = (), *, as_reported: bool = False
) -> list[Message]:
    """Its messages for a strategy that is not ours: plain ones, whose arrays and metrics all have the same keys.

    With `as_reported` the metrics are those that each client reported (`Cohort.reported_metrics`), and its other
    records are there too: config records, and in an evaluation records of arrays.

    They can be changed. `kept`: the names of records that stay in them in addition to the model and the metrics;
    `read`: the arrays that are in them as rules get them (`plain`), and not as the clients sent them.
    """
    replies = cohort.replies
    if as_reported:
        told = cohort.reported_metrics()
        clean = [_clean(reply, each, replies[0], kept, read) for reply, each in zip(replies, told, strict=True)]
        return [_with_others(message, reply) for message, reply in zip(clean, replies, strict=True)]
    metrics = cohort.completed_metrics()
    return [
        _clean(reply, completed, replies[0], kept, read) for reply, completed in zip(replies, metrics, strict=True)
    ]


def with_models(replies: Sequence[Reply], sent: Arrays, models: Sequence[Arrays], key: str) -> list[Reply]:
    """The replies as if the clients had sent these models, had one example each, and reported no other metrics.

    `key`: the metric that counts examples. Replies with one object as their model share its record.
    """
    made: dict[int, tuple[ArrayRecord, float]] = {}
    for model in models:
        if id(model) not in made:
            made[id(model)] = as_it_came(model, sent), norm(difference(model, sent, Layout.of(sent).parameters))
    return [_with_model(reply, model, *made[id(model)], key) for reply, model in zip(replies, models, strict=True)]


def _with_model(reply: Reply, model: Arrays, record: ArrayRecord, length: float, key: str) -> Reply:
    metrics: dict[str, Any] = {key: 1, wire.CLIENT_ID: reply.client_id}
    message = shallow(reply.message)
    metric_key = next(iter(metric_records(reply.message.content)))
    message.content = RecordDict({model_key(reply): record, metric_key: MetricRecord(metrics)})
    changed: dict[str, Any] = {"num_examples": 1.0, "model": model, "metrics": metrics, "length": length}
    return replace(reply, **changed, message=message, extras={})


def as_it_came(model: Arrays, sent: Arrays) -> ArrayRecord:
    """The record of a client's model, with what was taken out of it as a client sends it."""
    return record_of(put_back(model, held_of(sent)))


def _clean(
    reply: Reply, metrics: Mapping[str, Any], first: Reply, kept: Collection[str], read: Collection[str]
) -> Message:
    """A copy of the message that a strategy may change, with these metrics and the arrays in the sent order.

    A reply to an evaluation has no arrays.
    """
    message = shallow(reply.message)
    content = RecordDict()
    if reply.model:
        record = array_records(reply.message.content)[model_key(reply)]
        changed = record_of({name: plain(reply.model[name]) for name in read})
        content[model_key(first)] = ArrayRecord(
            {n: changed[n] if n in changed else record[n] for n in reply.model}
        )
        for name in kept:
            content[name] = array_records(reply.message.content)[name]
    content[next(iter(metric_records(first.message.content)))] = MetricRecord(dict(metrics))
    message.content = content
    return message


def _with_others(message: Message, reply: Reply) -> Message:
    """The message with the reply's config records, and in an evaluation with its records of arrays."""
    for name, record in reply.message.content.items():
        is_other = isinstance(record, ConfigRecord) or (isinstance(record, ArrayRecord) and not reply.model)
        if is_other and name not in message.content:
            message.content[name] = record
    return message


def model_key(reply: Reply) -> str:
    """The name of the record that holds the model."""
    return next(name for name in array_records(reply.message.content) if name not in reply.extras)


def shallow(message: Message) -> Message:
    """A shallow copy of the message: its content can be replaced."""
    copy = object.__new__(Message)
    copy.__dict__.update(message.__dict__)
    return copy
