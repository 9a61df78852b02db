"""What a reply to the roll call says of a node: only what is valid counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flwr.app import Message

from fedstride.errors import ReplyError, reason_of
from fedstride.flower.grids import ConnectedNode
from fedstride.messages import wire
from fedstride.messages.limits import MAX_TEXT
from fedstride.messages.node_names import FORM, is_name
from fedstride.messages.records import config_records
from strategies.replies.screening import MAX_EXAMPLES

from ..config.allowed_by_user import CLIENT_CODE

TEXTS = (
    "device",
    "python",
    "torch",
    "flwr",
    "fedstride",
    wire.FROZEN,
    wire.PACKED,
    wire.ONE_LEFT,
    wire.FEW_HELD,
    wire.NAME,
    wire.CODE,
)  # facts of a client that are texts

OF_DATA = (f"{wire.MOMENTS}.", f"{wire.DESCRIPTION}.")
"""How the keys of what a client says of its data begin."""


def name_of(node: ConnectedNode, facts: Mapping[str, Any]) -> str:
    """The name of the client: the one that its node states, or else, without a partition id, that of its key.

    Raises ReplyError for a text that is no name, and for another name than that with which its key was registered.
    """
    stated = facts.get(wire.NAME, "")
    if stated and not is_name(stated):
        raise ReplyError(f"{node} states the name {stated[:100]!r}, which is not allowed: it must be {FORM}")
    if stated and is_name(node.name) and stated != node.name:
        raise ReplyError(
            f"{node} states the name {stated!r}, but its key is registered as {node.name!r}; start it with this "
            "name in its node-config, or register its key with the other one"
        )
    has_number = facts[wire.CLIENT_ID] != node.id
    return stated or (node.name if is_name(node.name) and not has_number else "")


def check_code(node: ConnectedNode, stated: str, code: str) -> None:
    """Raises ReplyError if the node's client has other code than `code`, unless that is empty."""
    if code and stated != code:
        raise ReplyError(
            f"{node} has other client code than the server ({stated[:100] or 'unknown'!r}, not {code}): "
            f"start both from one copy of the app, or permit it with allow=[{CLIENT_CODE}]"
        )


def waits(reply: Message) -> bool:
    """Whether somebody at the node has still to approve the run."""
    return reply.has_error() and reply.error.code == wire.WAITS


def facts_in(node: ConnectedNode, reply: Message) -> dict[str, Any]:
    """The facts in a reply: the claimed id and what it says of its data as they are, else only what is valid.

    Raises ReplyError for a reply with an error or without facts.
    """
    if reply.has_error():
        raise ReplyError(f"{node} cannot take part: {reason_of(reply.error.code, reply.error.reason)}")
    record = config_records(reply.content).get(wire.ROLL_CALL) if reply.has_content() else None
    if record is None:
        raise ReplyError(f"{node} replied to the roll call without the record {wire.ROLL_CALL!r}")
    facts: dict[str, Any] = {wire.CLIENT_ID: record.get(wire.CLIENT_ID, node.id)}
    count = record.get(wire.NUM_EXAMPLES)
    if type(count) is int and 0 < count <= MAX_EXAMPLES:
        facts[wire.NUM_EXAMPLES] = count
    texts = {key: record[key] for key in TEXTS if isinstance(record.get(key), str)}
    of_data = {key: value for key, value in record.items() if key.startswith(OF_DATA)}
    return facts | {key: str(text)[:MAX_TEXT] for key, text in texts.items()} | of_data
