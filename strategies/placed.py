"""Where a strategy computes: with numpy arrays on the host, or with tensors on the device where the replies are.

Clients that are trained as one tensor program (`engine=cohort`) leave their models on its device. Knows nothing of
what rules compute.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from flwr.app import ArrayRecord, Message
from flwr.serverapp.strategy import Strategy

from fedstride.arrays import Arrays, declare, views
from fedstride.placing import Device, device_in, placed, values
from fedstride.records import array_records

from .cohort import Accepted
from .state import moved


def claims(strategy: Any, name: str) -> bool:
    """Whether a strategy's own class claims this; a claim of a parent class need not hold for a subclass."""
    return name in vars(type(strategy)) and bool(getattr(strategy, name))


class Placed:
    """The part of a strategy that has its arrays where the replies are."""

    takes_tensors: bool = False
    """Whether rule and state may be torch tensors instead of numpy arrays; each class must state it itself."""

    buffers: Sequence[str]
    sent: Arrays
    state: Any

    @property
    def works_on_tensors(self) -> bool:
        """Whether this strategy and those inside take tensors. Flower's do: they read the bytes of records."""
        inside: Iterable[Strategy] = self.nested() if hasattr(self, "nested") else ()
        return all(claims(each, "takes_tensors") for each in (self, *inside) if isinstance(each, Placed))

    def _send(self, record: ArrayRecord) -> None:
        """Keep the record's model, with the declared buffers, as the one that is sent; move the state to it."""
        self.sent = declare(values(record) if self.works_on_tensors else views(record), self.buffers)
        self.state = moved(self.state, device_in(self.sent.values()))

    def _followed(self, replies: Iterable[Message]) -> Sequence[Message]:
        """The replies. The model that was sent and the state are moved to the device on which these are."""
        found = replies if isinstance(replies, Accepted) else list(replies)
        if self.works_on_tensors:
            device = _device_of(found)
            if device is None and not isinstance(found, Accepted):
                device = device_in(self.sent.values())
            self.sent, self.state = placed(self.sent, device), moved(self.state, device)
        return found


def _device_of(replies: Sequence[Message]) -> Device:
    """The device on which the first model that stayed on one is; None if all are bytes."""
    if isinstance(replies, Accepted):
        return device_in(array for reply in replies.cohort.replies for array in reply.model.values())
    records = (r for m in replies if m.has_content() for r in array_records(m.content).values())
    return device_in(array for record in records for array in record.values())
