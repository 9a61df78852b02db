"""Sends the frozen arrays of a model to the clients that do not have them, with the message of a round.

What a client has is a fact of the roll call, which replies change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flwr.app import Message, RecordDict

from fedstride.arrays.named import Arrays, to_record
from fedstride.messages import wire
from fedstride.messages.records import metric_records
from fedstride.tasks.models.frozen_cache import digest_of

from .roster import Roster


class Delivery:
    """The frozen arrays of a run, and who has them.

    `values`: what every client gets in its configuration; empty if no array is frozen. `record`: the arrays.
    """

    def __init__(self, frozen: Arrays) -> None:
        self.record = to_record(frozen)
        self._digest = digest_of(frozen) if frozen else ""
        self.values = {wire.FROZEN: self._digest} if frozen else {}

    def add(self, messages: Sequence[Message], roster: Roster) -> None:
        """Add the arrays to the messages for clients that have not reported having them."""
        for message in messages if self._digest else ():
            client = roster.client_of(message.metadata.dst_node_id)
            if roster.facts.get(client, {}).get(wire.FROZEN) != self._digest:
                # A new content, since Flower's strategies share one among all messages.
                message.content = RecordDict({**message.content, wire.FROZEN: self.record})

    def note(self, messages: Sequence[Message], replies: Mapping[int, Message], roster: Roster) -> None:
        """Keep who has the arrays now: a client without an error in its reply, unless it could not keep them.

        After an error they are sent again: they may be what the client misses. No reply changes nothing.
        """
        for message in messages if self._digest else ():
            node = message.metadata.dst_node_id
            if node not in replies:
                continue
            client = roster.client_of(node)
            facts = {key: value for key, value in roster.facts.get(client, {}).items() if key != wire.FROZEN}
            has = {wire.FROZEN: self._digest} if _keeps(replies[node]) else {}
            roster.facts[client] = {**facts, **has}


def _keeps(reply: Message) -> bool:
    if not reply.has_content():
        return False
    return not any(record.get(wire.FROZEN_HELD) for record in metric_records(reply.content).values())
