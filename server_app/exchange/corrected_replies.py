"""What the roll call said counts, and not what replies state: who the client is, and its most examples."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from flwr.app import Message

from fedstride.messages import wire
from fedstride.messages.records import metric_records

from .roster import Roster


def set_client_ids(replies: Mapping[int, Message], roster: Roster) -> None:
    """Replace the client ids in the replies by those of the roll call: the ids in a reply are not trusted."""
    for node, reply in replies.items():
        client = roster.client_of(node)
        for record in metric_records(reply.content).values() if reply.has_content() else ():
            if isinstance(record.get(wire.CLIENT_ID, client), int):  # the screening rejects other types
                record[wire.CLIENT_ID] = client


def most_measured(facts: Mapping[int, Mapping[str, Any]], holdout: float) -> dict[int, float]:
    """The most examples that each client can have for an evaluation, by client id.

    `facts`: of the roll call, with the number of training examples n. A client that has not said how many it has
    counts as one. See `_most_of`.
    """
    counts = {client: of_client.get(wire.NUM_EXAMPLES) for client, of_client in facts.items()}
    return {client: _most_of(count, holdout) if isinstance(count, int) else 1 for client, count in counts.items()}


def _most_of(count: int, holdout: float) -> int:
    """All that a client with this number n of training examples has altogether, or more if chance allows it.

    With the share h held out, these are n / (1 - h). Each example is drawn by itself (`evaluation/holdout.py`), so
    those held out are n h / (1 - h) with a standard deviation of sqrt(n h) / (1 - h): a client with few examples
    can hold out more than it trains on.
    """
    if holdout == 0.0:
        return count
    mean, deviation = count * holdout / (1.0 - holdout), math.sqrt(count * holdout) / (1.0 - holdout)
    return math.ceil(max(count / (1.0 - holdout), mean + 6.0 * (deviation + 1.0 / (1.0 - holdout))))
