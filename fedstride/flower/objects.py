"""The form of the objects of which a message consists at a SuperLink (1.39 to 1.42)."""

from __future__ import annotations

import json
from typing import Any

from flwr.app import ConfigRecord, Message, MetricRecord

from .identity import set_id

CHUNK = "ArrayChunk"
"""The kind of an object whose body is a piece of an array's bytes. All other bodies are parsed."""

CHILDREN = {
    "Message": ("RecordDict",),
    "RecordDict": ("ArrayRecord", "MetricRecord", "ConfigRecord"),
    "ArrayRecord": ("Array",),
    "Array": (CHUNK,),
    CHUNK: (),
    "MetricRecord": (),
    "ConfigRecord": (),
}
"""The kinds of an object's children. A tree of these has at most five levels, whatever a node declares."""


def head_of(content: bytes, most_bytes: int) -> tuple[str, list[str], int]:
    """The kind of an object, the ids of its children, and where its body begins.

    Raises ValueError if the head is not within the first `most_bytes` bytes, or has another form.
    """
    from flwr.supercore.constant import HEAD_BODY_DIVIDER, HEAD_VALUE_DIVIDER

    end = content.find(HEAD_BODY_DIVIDER, 0, most_bytes)
    if end < 0:
        raise ValueError("an object without a head")
    kind, children, _ = content[:end].decode().split(HEAD_VALUE_DIVIDER)
    return kind, children.split(",") if children else [], end + len(HEAD_BODY_DIVIDER)


def chunks_in(body: bytes) -> Any:
    """What the body of an array names as its chunks: places among its children. None if it names none.

    A node may have written anything here. Raises ValueError if the body is no JSON.
    """
    declared = json.loads(body)
    return declared.get("arraychunk_ids") if isinstance(declared, dict) else None


def inflate(message_id: str, contents: dict[str, bytes]) -> Any:
    """The object with this id, from the contents of all its objects, which are used up. Raises any error."""
    from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

    inflated = inflate_object_from_contents(message_id, contents)
    if isinstance(inflated, Message):
        set_id(inflated, message_id)
    return inflated


def plain_record(content: bytes, most_head: int) -> Any:
    """The ConfigRecord or MetricRecord that this object is; None if it is none. Raises any error."""
    kind, _, _ = head_of(content, most_head)
    found = {kind.__name__: kind for kind in (ConfigRecord, MetricRecord)}.get(kind)
    return None if found is None else found.inflate(content)
