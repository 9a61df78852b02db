"""What messages and replies say about themselves on the wire, read under bounds and made."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from flwr.proto.error_pb2 import Error as ErrorProto
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.message_pb2 import (
    Metadata,
    ObjectTree,
)

from .connection import AnswerError, MessageHead, TooLargeError

MOST_OBJECTS, MOST_DEPTH = 20_000, 8
"""Of a message's tree."""

ID = re.compile(r"[0-9a-f]{64}")
_KIND = re.compile(r"[a-z0-9_.-]{1,100}", re.IGNORECASE)


def reply_object(to: MessageHead, node: int, content: str, error: tuple[int, str] | None = None) -> bytes:
    """The message object of a reply, whose metadata are made here.

    `content`: the id of the content; empty for an error.

    The form is that of Flower's `Message.deflate` (1.39 to 1.42).
    """
    created = time.time()
    metadata = Metadata(
        run_id=to.run,
        message_id="",
        src_node_id=node,
        dst_node_id=to.source,
        reply_to_message_id=to.id,
        group_id=to.group,
        ttl=max(to.created + to.ttl - created, 0.001),
        message_type=to.kind,
        created_at=created,
        src_task_id=to.target_task,
        dst_task_id=to.source_task,
    )
    failed = None if error is None else ErrorProto(code=error[0], reason=error[1])
    body = MessageProto(metadata=metadata, error=failed).SerializeToString(deterministic=True)
    return f"Message {content} {len(body)}".encode() + b"\0" + bytes(body)


def head_of(metadata: Metadata) -> MessageHead:
    """What a message says about itself. Raises AnswerError for impossible values."""
    if not _KIND.fullmatch(metadata.message_type) or not math.isfinite(metadata.created_at + metadata.ttl):
        raise AnswerError("the SuperLink sent a message whose type or time has another form")
    return MessageHead(
        metadata.message_id,
        metadata.run_id,
        metadata.src_node_id,
        metadata.dst_node_id,
        metadata.group_id,
        metadata.message_type,
        metadata.created_at,
        metadata.ttl,
        metadata.src_task_id if metadata.HasField("src_task_id") else None,
        metadata.dst_task_id if metadata.HasField("dst_task_id") else None,
    )


def objects_in(tree: ObjectTree) -> tuple[str, ...]:
    """The ids in a tree, each once. Raises TooLargeError if it is too large or too deep."""
    ids: dict[str, None] = {}
    level: Sequence[Any] = [tree]
    seen = depth = 0
    while level:
        depth += 1
        seen += len(level)
        if seen > MOST_OBJECTS or depth > MOST_DEPTH:
            raise TooLargeError(
                f"a message of more than {MOST_OBJECTS} objects, or nested deeper than {MOST_DEPTH}"
            )
        ids.update((branch.object_id, None) for branch in level)
        level = [child for branch in level for child in branch.children]
    if not all(map(ID.fullmatch, ids)):
        raise AnswerError("the SuperLink sent a tree of objects whose ids have another form")
    return tuple(ids)


def object_tree(root: str, children: Mapping[str, tuple[str, ...]]) -> ObjectTree:
    """The tree of these objects, from the root on."""
    return ObjectTree(object_id=root, children=[object_tree(child, children) for child in children.get(root, ())])


def plain_value(value: Any) -> bool | int | float | str:
    """A value of a run's configuration. Raises AnswerError for one of another type."""
    kind = value.WhichOneof("scalar")
    scalar = getattr(value, kind) if kind else ""
    if not isinstance(scalar, (bool, int, float, str)):
        raise AnswerError("the SuperLink sent a run whose configuration has a value of another type")
    return scalar
