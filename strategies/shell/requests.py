"""What a part of a strategy asks of clients in addition to training: the request, and the messages with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from flwr.app import ConfigRecord, Message, RecordDict

from fedstride.arrays.named import Arrays
from fedstride.arrays.on_device import record_of
from fedstride.messages import wire
from fedstride.messages.records import config_records

from ..replies.cohort import Expected
from ..replies.numbers import Number


class Request(NamedTuple):
    """What a rule needs from the clients of a round in addition to training, for its client half (`half`)."""

    values: Mapping[str, Any] = {}  # plain values that are sent, by name
    arrays: Mapping[str, Arrays] = {}  # arrays that are sent in addition to the model, by name
    returns: Mapping[str, Arrays] = {}  # arrays that clients must return, by name: same names, shapes, dtypes
    numbers: Mapping[str, Number] = {}  # numbers that clients must report, by the metric's whole name


def expected_of(half: str, request: Request) -> Expected:
    """What replies must contain in addition to the model, for a request of this client half."""
    returns = {wire.of_half(half, name): arrays for name, arrays in request.returns.items()}
    return Expected((half,), returns, request.numbers) if half else Expected()


def with_request(messages: Iterable[Message], half: str, request: Request, config_key: str) -> list[Message]:
    """The messages with a rule's request to its client half: the half's name, its values and its arrays.

    Contents are copied first, since Flower's strategies share one content among all messages.
    """
    listed = list(messages)
    if not half or not listed:
        return listed
    values = {wire.of_half(half, name): value for name, value in request.values.items()}
    arrays = {wire.of_half(half, name): record_of(by_name) for name, by_name in request.arrays.items()}
    for message in listed:
        config = config_records(message.content).get(config_key, ConfigRecord())
        halves = [*config.get(wire.HALVES, []), half]  # type: ignore[misc]
        extended = ConfigRecord({**config, wire.HALVES: halves, **values})
        message.content = RecordDict({**message.content, config_key: extended, **arrays})
    return listed
