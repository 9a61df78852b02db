"""Replaces what replies state by what the roll call said: who the client is, and its most examples."""

from __future__ import annotations

from collections.abc import Container, Mapping

from flwr.app import Message

from fedstride.messages import wire
from fedstride.messages.records import metric_records

from .roll_call import Roster


def set_client_ids(replies: Mapping[int, Message], roster: Roster) -> None:
    """Replace the client ids in the replies by those of the roll call: the ids in a reply are not trusted."""
    for node, reply in replies.items():
        client = roster.client_of(node)
        for record in metric_records(reply.content).values() if reply.has_content() else ():
            if isinstance(record.get(wire.CLIENT_ID, client), int):  # the screening rejects other types
                record[wire.CLIENT_ID] = client


def limit_counts(replies: Mapping[int, Message], roster: Roster, key: str, trained: Container[int]) -> None:
    """Replace numbers of examples above that of the roll call, for clients whose training was not used.

    The strategy limits those of the other clients, by their numbers in training. `key`: of the number. `trained`:
    the nodes whose training was used.
    """
    for node, reply in replies.items():
        known = roster.facts.get(roster.client_of(node), {}).get(wire.NUM_EXAMPLES)
        if node in trained or not isinstance(known, int) or known < 1 or not reply.has_content():
            continue
        for record in metric_records(reply.content).values():
            count = record.get(key)
            if isinstance(count, (int, float)) and count > known:
                record[key] = known
