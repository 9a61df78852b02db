"""A Grid on this machine some of whose clients attack.

Attackers train like all others. Their replies are held until all replies of the round are there, because an attack
may be computed from several of them. A reply that never comes holds up the attackers' too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid

from fedstride.arrays.finite import held_in, put_back, taken_out
from fedstride.arrays.named import Arrays, Held, is_buffer, to_record, views
from fedstride.messages import wire
from fedstride.messages.records import array_records, metric_records
from server_app.exchange.sending import CohortGrid

from .rules import Attack, Present

Updates = Mapping[tuple[str, str], np.ndarray]
"""The update of a client in float64, by record and parameter."""


@dataclass
class _Round:
    """The messages of one training, with the replies that are there. `held`: those of attackers."""

    sent: dict[str, Message]
    replies: dict[str, Message] = field(default_factory=dict)
    held: list[str] = field(default_factory=list)


class AttackedGrid(CohortGrid):
    """The nodes of a Grid on this machine, numbered by client id, of which some attack."""

    def __init__(self, grid: Grid, attack: Attack, attackers: Sequence[int], order: Sequence[int]) -> None:
        super().__init__(grid, list(grid.get_node_ids()))
        self._attack, self._attackers, self._order = attack, frozenset(attackers), order
        self._clients = {node: client for client, node in enumerate(self._nodes)}
        self._rounds: list[_Round] = []

    def keep_client_states_in(self, folder: Path) -> None:
        """Forwarded to the wrapped Grid."""
        self._grid.keep_client_states_in(folder)  # type: ignore[attr-defined]

    def repeat(self) -> None:
        """Forwarded to the wrapped Grid."""
        self._grid.repeat()  # type: ignore[attr-defined]

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Forwarded to the wrapped Grid."""
        pushed = list(messages)
        ids = list(super().push_messages(pushed))
        training = {i: m for i, m in zip(ids, pushed, strict=True) if m.metadata.message_type == MessageType.TRAIN}
        if training:
            self._rounds = [_Round(training)]  # of an earlier one, nobody waits for a reply any more
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """The replies that are there, with those of attackers when the round's are complete."""
        wanted = list(message_ids)
        while True:
            pulled = list(super().pull_messages(wanted))
            given = [reply for message in pulled for reply in self._taken(message)]
            if given or not pulled:
                return given

    def _taken(self, reply: Message) -> list[Message]:
        message_id = reply.metadata.reply_to_message_id
        of_round = next((training for training in self._rounds if message_id in training.sent), None)
        if of_round is None:
            return [reply]
        of_round.replies[message_id] = reply
        is_held = self._client(of_round, message_id) in self._attackers and reply.has_content()
        of_round.held += [message_id] if is_held else []
        given = [] if is_held else [reply]
        if len(of_round.replies) == len(of_round.sent):
            given += self._attacked(of_round)
        return given

    def _client(self, of_round: _Round, message_id: str) -> int:
        return self._clients[of_round.sent[message_id].metadata.dst_node_id]

    def _attacked(self, of_round: _Round) -> list[Message]:
        """The replies of the attackers of a complete round."""
        there = {
            self._client(of_round, message_id): message_id
            for message_id, reply in of_round.replies.items()
            if reply.has_content()
        }
        present = Present(
            attackers=sorted(set(there) & self._attackers),
            honest=sorted(set(there) - self._attackers),
            order=self._order,
        )
        self._rounds.remove(of_round)
        sent = {client: of_round.sent[message_id] for client, message_id in there.items()}
        return self._answers(sent, {client: of_round.replies[i] for client, i in there.items()}, present)

    def _answers(
        self, sent: Mapping[int, Message], replies: Mapping[int, Message], present: Present
    ) -> list[Message]:
        """What the attackers send instead of their honest replies; all by client id."""
        updates = {
            client: updates_in(sent[client], replies[client])
            for client in (*present.attackers, *self._attack.known(present))
        }
        known = [updates[client] for client in self._attack.known(present)]
        return [replace(self._attack, sent[k], replies[k], updates[k], known, present) for k in present.attackers]


def _start(sent: Message, record: str) -> tuple[Arrays, Mapping[str, Held]]:
    """What a client's record began as: the model that was sent, and what is not finite in it; else nothing."""
    model = views(array_records(sent.content)[record]) if record == wire.ARRAYS else {}
    held = held_in(model)
    return taken_out(model, held), held


def updates_in(sent: Message, reply: Message) -> Updates:
    """The update of each parameter: the model minus the sent one; other records are updates themselves."""
    updates = {}
    for name, record in array_records(reply.content).items():
        start, held = _start(sent, name)
        for key, array in taken_out(views(record), held).items():
            if not is_buffer(key, array):
                updates[name, key] = array.astype(np.float64) - start.get(key, 0.0)
    return updates


def replace(
    attack: Attack, sent: Message, reply: Message, updates: Updates, known: Sequence[Updates], present: Present
) -> Message:
    """The attacker's reply, made from its honest one."""
    new = {}
    for key, update in updates.items():
        others = [client_updates[key] for client_updates in known if key in client_updates]
        if len(others) == len(known) and (known or not attack.colludes):
            new[key] = attack.update(update, others, present)
    content: dict[str, Any] = with_updates(sent, reply, new)
    for name, metrics in metric_records(reply.content).items():
        count = metrics.get(wire.NUM_EXAMPLES)
        if isinstance(count, int):
            content[name] = MetricRecord({**metrics, wire.NUM_EXAMPLES: attack.examples(count)})
    reply.content = RecordDict(content)
    return reply


def with_updates(sent: Message, reply: Message, updates: Updates) -> dict[str, Any]:
    """The records of a reply with these updates, and else as they are."""
    content: dict[str, Any] = dict(reply.content)
    for name, record in array_records(reply.content).items():
        start, held = _start(sent, name)
        arrays: Arrays = dict(views(record))
        for (of, key), update in updates.items():
            if of == name:
                arrays[key] = np.asarray(start.get(key, 0.0) + update).astype(arrays[key].dtype)
        content[name] = to_record(put_back(arrays, held))
    return content
