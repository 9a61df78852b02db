"""What a node may push: one reply in its own name. Flower (1.39 to 1.42) checks only whose key a request has."""

from __future__ import annotations

from flwr.proto.fleet_pb2 import PushMessagesRequest
from google.protobuf.message import DecodeError

SUPERLINK = 1
"""The number that a SuperLink has as the source and target of messages."""


def fault_in(body: bytes) -> str:
    """What is wrong with a request of a node to push messages; empty if it is one reply in its own name."""
    try:
        return fault_of(PushMessagesRequest.FromString(body))
    except DecodeError:
        return "not a request to push messages"


def fault_of(request: PushMessagesRequest) -> str:
    """As `fault_in`, for a request that has been read."""
    if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
        return f"{len(request.messages_list)} messages in one request, and one is allowed"
    pushed = request.messages_list[0].metadata
    if pushed.src_node_id != request.node.node_id:
        return f"node {request.node.node_id} answers in the name of {pushed.src_node_id}"
    if pushed.dst_node_id != SUPERLINK or not pushed.reply_to_message_id:
        return f"node {request.node.node_id} sends an instruction to {pushed.dst_node_id}, and not a reply"
    return ""
