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
    """The most examples that each client can have for an evaluation, by client id: all that it has altogether.

    `facts`: of the roll call, with the number of training examples n; with those that are held out, these are
    n / (1 - `holdout`). A client that has not said how many it has counts as one.
    """
    counts = {client: of_client.get(wire.NUM_EXAMPLES) for client, of_client in facts.items()}
    return {
        client: math.ceil(count / (1.0 - holdout)) if isinstance(count, int) else 1
        for client, count in counts.items()
    }
