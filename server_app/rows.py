"""Rows of plain values for a round and for each of its clients, as they are written to the run's records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from flwr.app import Message

from fedstride import flower, wire
from fedstride.metrics import over_clients
from strategies.cohort import Cohort, Reply

from .roll_call import Roster

Row = dict[str, Any]
"""The values of a round or a client by metric name: numbers, strings, or lists of them."""

ROUND_NAMES = ("round", "clients")
ROUND_PREFIXES = ("test/", "seconds/")
SINGLE_NUMBER_PREFIXES = ("train/", "local/")
CLIENT_NAMES = ("status", "reason", "norm", "note")
"""Names that the server writes itself, and prefixes of metrics that are always single numbers. Values from clients
that conflict with these are ignored."""

NO_BYTES = {"bytes/down": 0, "bytes/up": 0}
"""The bytes of a client that was not asked."""

MAX_CLIENT_CHARACTERS = 1_000_000
"""Maximum number of characters of one client's row, so that a malicious client cannot fill the disk."""

NUMBER_CHARACTERS = 25
"""Maximum number of characters of a number in JSON."""


def known_names(metrics: Mapping[str, Any]) -> Row:
    """The metrics of a round without those that are not recorded.

    Not recorded are ids and counts, which Flower's own strategies average too, and names that the server writes.
    """
    return {
        k: v
        for k, v in metrics.items()
        if over_clients(k) != "none"
        and k not in ROUND_NAMES
        and not k.startswith(ROUND_PREFIXES)
        and not (k.startswith(SINGLE_NUMBER_PREFIXES) and isinstance(v, list))
    }


def client_rows(
    server_round: int,
    messages: Sequence[Message],
    replies: Mapping[int, Message],
    cohort: Cohort,
    roster: Roster,
    no_reply: Callable[[int], str],
) -> list[Row]:
    """One row for each message of the round: the client's metrics, or the reason why its reply was not used.

    `no_reply`: the reason why there is no reply, by client id.
    """
    accepted = {reply.node_id: reply for reply in cohort.replies}
    reasons = {item.node_id: item.reason for item in cohort.rejected}
    rows = []
    for message in messages:
        node = message.metadata.dst_node_id
        row: Row = {"round": server_round, "client": roster.client_of(node)}
        row["bytes/down"] = _bytes(message)
        row["bytes/up"] = _bytes(replies[node]) if node in replies else 0
        if node in accepted:
            own = (*row, *CLIENT_NAMES, wire.CLIENT_ID)
            metrics, limit_notes = _limited({k: v for k, v in accepted[node].metrics.items() if k not in own})
            notes = [*_notes(accepted[node], cohort), *limit_notes]
            row |= {"status": "used", "norm": accepted[node].length, **metrics}
            row |= {"note": "; ".join(notes)} if notes else {}
        elif node in replies:
            row |= {"status": "rejected", "reason": reasons.get(node, "the reply has the id of another node")}
        else:
            row |= {"status": "no reply", "reason": no_reply(row["client"])}
        rows.append(row)
    return sorted(rows, key=lambda row: row["client"])


def absent_rows(server_round: int, left_out: Mapping[int, str], refused: Mapping[int, str]) -> list[Row]:
    """A row for each client that is left out of the round, and for each node that was refused before it.

    `left_out`: reasons by client id. `refused`: reasons by node id, since a refused node is not a client.
    """
    rows: list[Row] = [
        {"round": server_round, "client": client, **NO_BYTES, "status": "left out", "reason": reason}
        for client, reason in sorted(left_out.items())
    ]
    rows += [
        {"round": server_round, "client": None, "node": node, **NO_BYTES, "status": "refused", "reason": reason}
        for node, reason in sorted(refused.items())
    ]
    return rows


def _notes(reply: Reply, cohort: Cohort) -> list[str]:
    """Notes for the client's row: client halves that it did not execute, and problems with its state."""
    notes = [
        f"did not execute the client half of {half}"
        for half, clients in cohort.not_done.items()
        if reply.client_id in clients
    ]
    if reply.metrics.get(wire.STATE_LOST) == 1:
        notes.append("its state was missing, and it used an empty one")
    if reply.metrics.get(wire.STATE_HELD) == 1:
        notes.append("it could not write its state to disk, and keeps it in memory")
    return notes


def _limited(metrics: Row) -> tuple[Row, list[str]]:
    """The first metrics of a client that together fit into a row, and a note if some do not fit."""
    left = MAX_CLIENT_CHARACTERS
    kept: Row = {}
    for name, value in metrics.items():
        left -= len(name) + NUMBER_CHARACTERS * (len(value) if isinstance(value, list) else 1)
        if left < 0:
            return kept, [f"reported {len(metrics)} metrics, of which {len(kept)} are recorded"]
        kept[name] = value
    return kept, []


def _bytes(message: Message) -> int:
    """Bytes of the arrays in a message, headers included. Plain values are not counted."""
    if not message.has_content():
        return 0
    return sum(flower.records_bytes(record) for record in message.content.array_records.values())
