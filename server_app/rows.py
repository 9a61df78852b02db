"""A round and its clients as rows of plain values: what a record holds, and which names are its own.

Knows names and replies; does not know how a round goes nor where rows are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import Message

from fedstride import flower, wire
from fedstride.metrics import over_clients
from strategies.cohort import Cohort, Reply

from .roll_call import Roster

Row = dict[str, Any]
"""Plain numbers, strings or lists of them, by metric name: what a record holds of a round or a client."""

NAMES_OF_A_ROUND = ("round", "clients")
PREFIXES_OF_A_ROUND = ("test/", "seconds/")
PREFIXES_OF_NUMBERS = ("train/", "local/")
NAMES_OF_A_CLIENT = ("status", "reason", "norm", "note")
"""What a record says itself, and what it shows as one number: what clients report otherwise is not heard."""


MOST_OF_A_CLIENT = 1_000_000
"""Characters of names and numbers that one client's row holds: who reports more must not fill the disk."""


NUMBER = 25
"""Characters of a number in a line of JSON, at most."""


def known_names(metrics: Mapping[str, Any]) -> Row:
    """Without ids and counts, which Flower's own strategies average too, and without the record's own names."""
    return {
        k: v
        for k, v in metrics.items()
        if over_clients(k) != "none"
        and k not in NAMES_OF_A_ROUND
        and not k.startswith(PREFIXES_OF_A_ROUND)
        and not (k.startswith(PREFIXES_OF_NUMBERS) and isinstance(v, list))
    }


def client_rows(
    server_round: int,
    messages: Sequence[Message],
    replies: Mapping[int, Message],
    cohort: Cohort,
    roster: Roster,
) -> list[Row]:
    """A row for each message that was sent: what came back, or why it is not used."""
    usable = {reply.node_id: reply for reply in cohort.replies}
    reasons = {item.node_id: item.reason for item in cohort.rejected}
    rows = []
    for message in messages:
        node = message.metadata.dst_node_id
        row: Row = {"round": server_round, "client": roster.client_of(node)}
        row["bytes/down"] = _bytes(message)
        row["bytes/up"] = _bytes(replies[node]) if node in replies else 0
        if node in usable:
            own = (*row, *NAMES_OF_A_CLIENT, wire.CLIENT_ID)
            metrics, told = _bounded({k: v for k, v in usable[node].metrics.items() if k not in own})
            notes = [*_notes(usable[node], cohort), *told]
            row |= {"status": "used", "norm": usable[node].length, **metrics}
            row |= {"note": "; ".join(notes)} if notes else {}
        elif node in replies:
            row |= {"status": "rejected", "reason": reasons.get(node, "the reply names another node")}
        else:
            row |= {"status": "no reply", "reason": "no reply in time"}
        rows.append(row)
    return sorted(rows, key=lambda row: row["client"])


def _notes(reply: Reply, cohort: Cohort) -> list[str]:
    """What this client left out of what it was asked for, and that it began with an empty state."""
    notes = [f"did not do {half}" for half, clients in cohort.not_done.items() if reply.client_id in clients]
    if reply.metrics.get(wire.STATE_LOST) == 1:
        notes.append("its state was lost, it began anew")
    if reply.metrics.get(wire.STATE_HELD) == 1:
        notes.append("its disk did not take its state, which is held in memory")
    return notes


def _bounded(metrics: Row) -> tuple[Row, list[str]]:
    """As many of a client's metrics, in its order, as a row may hold; and a note where that is not all of them."""
    left = MOST_OF_A_CLIENT
    kept: Row = {}
    for name, value in metrics.items():
        left -= len(name) + NUMBER * (len(value) if isinstance(value, list) else 1)
        if left < 0:
            return kept, [f"reported {len(metrics)} metrics, of which {len(kept)} are recorded"]
        kept[name] = value
    return kept, []


def _bytes(message: Message) -> int:
    """Bytes of the arrays in a message, their headers included; the few plain values are not counted."""
    if not message.has_content():
        return 0
    return sum(flower.records_bytes(record) for record in message.content.array_records.values())
