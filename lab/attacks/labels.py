"""The training of a client whose examples have flipped labels: y becomes C - 1 - y, with C classes."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from flwr.app import Context, Message, MessageType

from fedstride.messages import wire
from fedstride.messages.records import config_records

if TYPE_CHECKING:
    from client_app.from_message import Work

FLIPS: Final = "flips-labels"
"""The key in the node-config of such a client, on this machine."""


def on_flipped_labels(message: Message, context: Context) -> Message:
    """The client's reply. Its evaluation and its answer to the roll call are honest."""
    from client_app import from_message
    from client_app.app import app, trained

    if message.metadata.message_type != MessageType.TRAIN:
        return app(message, context)
    started = time.perf_counter()
    job = from_message.read(config_records(message.content)[wire.CONFIG], context)
    return trained(message, context, flipped(job), started)


def flipped(job: Work) -> Work:
    """The same job with flipped labels."""
    examples = copy.copy(job.examples)
    examples.y = examples.spec.outputs - 1 - examples.y
    return replace(job, examples=examples)
