"""Where a strategy computes: with numpy arrays on the host, or with tensors on the device where the replies are.

Clients that are trained as one tensor program (`engine=vectorized`) leave their models on its device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flwr.app import Message

from fedstride.arrays.on_device import Device, device_in
from fedstride.messages.records import array_records


def claims(strategy: Any, name: str) -> bool:
    """Whether a strategy's own class claims this; a claim of a parent class need not hold for a subclass."""
    return name in vars(type(strategy)) and bool(getattr(strategy, name))


def device_of(replies: Sequence[Message]) -> Device:
    """The device on which the first model that stayed on one is; None if all are bytes."""
    records = (r for m in replies if m.has_content() for r in array_records(m.content).values())
    return device_in(array for record in records for array in record.values())
