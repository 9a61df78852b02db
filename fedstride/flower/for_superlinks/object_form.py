"""The form of the objects of which a message consists at a SuperLink (1.39 to 1.42)."""

from __future__ import annotations

import json
from typing import Any

from flwr.app import ConfigRecord, Message, MetricRecord

from ..identity import set_id

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
    record_type = {kind.__name__: kind for kind in (ConfigRecord, MetricRecord)}.get(kind)
    return None if record_type is None else record_type.inflate(content)


def references(content: bytes, most_bytes: int) -> dict[str, str]:
    """The ids of a RecordDict's records, or of an ArrayRecord's arrays, by name.

    Raises ValueError if the object is larger, or has another form.
    """
    ids = _json(content, most_bytes)
    if not isinstance(ids, dict) or not all(isinstance(object_id, str) for object_id in ids.values()):
        raise ValueError("an object that does not name its parts")
    return ids


def array_form(content: bytes, most_bytes: int) -> tuple[str, list[int], str, list[str]]:
    """The dtype, the shape and the kind of storage of an array, and the ids of its chunks, in order.

    Raises ValueError if the object is larger, or has another form.
    """
    description, chunks = _json(content, most_bytes), head_of(content, most_bytes)[1]
    if not isinstance(description, dict):
        raise ValueError("an array without a description")
    dtype, stored = description.get("dtype"), description.get("stype")
    shape, places = _wholes(description.get("shape")), _wholes(description.get("arraychunk_ids"))
    if not (isinstance(dtype, str) and isinstance(stored, str)):
        raise ValueError("an array whose description has another form")
    if not all(0 <= place < len(chunks) for place in places):
        raise ValueError("an array with a part that it does not have")
    return dtype, shape, stored, [chunks[place] for place in places]


def _wholes(value: Any) -> list[int]:
    if not isinstance(value, list) or not all(type(number) is int for number in value):
        raise ValueError("an array whose description has another form")
    return value


def body_of(content: bytes, most_head: int) -> memoryview:
    """The body of an object, which is not copied. Raises ValueError as `head_of`."""
    return memoryview(content)[head_of(content, most_head)[2] :]


def message_kind(content: bytes, most_bytes: int) -> str:
    """What a message object says that it is: train, evaluate, query.

    Raises ValueError if the object is larger, has another form, or is an error.
    """
    from flwr.proto.message_pb2 import Message as MessageProto
    from google.protobuf.message import DecodeError

    if len(content) > most_bytes:
        raise ValueError("a message object that is too large")
    try:
        message = MessageProto.FromString(bytes(body_of(content, most_bytes)))
    except DecodeError:
        raise ValueError("a message object of another form") from None
    if message.HasField("error"):
        raise ValueError("a message that is an error")
    return str(message.metadata.message_type)


def _json(content: bytes, most_bytes: int) -> Any:
    if len(content) > most_bytes:
        raise ValueError("a description that is too large")
    try:
        return json.loads(bytes(body_of(content, most_bytes)))
    except RecursionError:
        raise ValueError("a description that is nested too deeply") from None
