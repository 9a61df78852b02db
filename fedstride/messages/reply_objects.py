"""A node's reply as objects: how large it may be, whether it is well formed, and the message that it makes.

A reply arrives as a tree of objects: Message, RecordDict, its records, arrays, and the chunks of the arrays'
bytes. An object has a head (its kind and its children's ids) and a body. All of it is what the node wrote: a chunk
can be listed many times, a record can have thousands of names, a list can be nested deeply, and a few bytes can
claim gigabytes. So what is declared is added up before anything is joined or unpacked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import Message, RecordDict

from ..arrays.named import Arrays
from ..arrays.on_device import records_bytes, size_of
from ..errors import ReplyError, last_line
from ..flower.for_superlinks.object_form import CHILDREN, CHUNK, chunks_in, head_of, inflate
from . import wire
from .limits import MAX_LIST, MAX_METRICS, MAX_NAME, MAX_RECORDS, MAX_TEXT, PLAIN_BYTES, SPARE_ARRAYS, SPARE_BYTES
from .packed_arrays import unpacked
from .records import array_records, config_records, metric_records

HEADER_BYTES = 1024
"""More than the `.npy` header of an array, and than the plain values that describe it."""


@dataclass(frozen=True)
class Allowance:
    """What one reply may consist of: the arrays that are expected, and a fixed amount beside them."""

    array_bytes: int = 0
    arrays: int = 0

    @classmethod
    def of(cls, sent: Message, returns: Mapping[str, Arrays] | None = None) -> Allowance:
        """The arrays in the message that was sent, and the records of arrays asked back that it does not have."""
        records = array_records(sent.content) if sent.has_content() else {}
        records.pop(wire.FROZEN, None)  # never sent back
        further = [arrays for name, arrays in (returns or {}).items() if name not in records]
        return cls(
            array_bytes=sum(records_bytes(record) for record in records.values())
            + sum(array.nbytes + HEADER_BYTES for arrays in further for array in arrays.values()),
            arrays=sum(map(len, records.values())) + sum(map(len, further)),
        )

    @property
    def most_arrays(self) -> int:
        """Arrays in all records together."""
        return 2 * self.arrays + SPARE_ARRAYS

    @property
    def most_bytes(self) -> int:
        """Bytes of all objects together, and again of all arrays after joining."""
        return self.array_bytes + SPARE_BYTES

    @property
    def most_plain_bytes(self) -> int:
        """Bytes of all bodies that are parsed, which are all but those of chunks."""
        return PLAIN_BYTES + HEADER_BYTES * self.most_arrays

    @property
    def most_objects(self) -> int:
        """Objects in a reply. Flower's chunks have 5 MiB; a node may use smaller ones."""
        return 2 + MAX_RECORDS + 2 * self.most_arrays + self.most_bytes // 2**16


def parse(message_id: str, contents: dict[str, bytes], allowance: Allowance) -> Message:
    """The message that these objects make, after a check of all that they declare. Uses `contents` up.

    Raises ReplyError, and nothing else, whatever the bytes are.
    """
    try:
        parsed = _check(message_id, contents, allowance)
        message = inflate(message_id, contents)
        assert isinstance(message, Message)  # `_check` has seen the kind
        if message.has_content():
            _check_extent(message.content, allowance)  # before anything is unpacked
            rest = allowance.most_plain_bytes - parsed
            message.content = unpacked(message.content, allowance.most_arrays, rest)
    except ReplyError:
        raise
    except Exception as error:  # Flower's parsers raise KeyError, RecursionError, DecodeError and others
        raise ReplyError(f"it cannot be parsed: {type(error).__name__}: {last_line(str(error))}") from None
    return message


def _check(message_id: str, contents: Mapping[str, bytes], allowance: Allowance) -> int:
    """The bytes that will be parsed. Raises ReplyError (or any error) unless this is a message of allowed size."""
    heads = {
        object_id: head_of(content, 200 + 65 * allowance.most_objects) for object_id, content in contents.items()
    }
    _check_kinds(message_id, heads)
    bodies = {object_id: len(contents[object_id]) - body for object_id, (_, _, body) in heads.items()}
    plain = sum(bodies[object_id] for object_id, (kind, _, _) in heads.items() if kind != CHUNK)
    _at_most("bytes beside the data of its arrays", plain, allowance.most_plain_bytes)
    joined = 0
    for object_id, (kind, children, body) in heads.items():
        if kind == "Array":
            joined += _joined_bytes(contents[object_id][body:], [bodies[child] for child in children])
    _at_most("bytes that its arrays declare", joined, allowance.most_bytes)
    return plain


def _check_kinds(message_id: str, heads: Mapping[str, tuple[str, list[str], int]]) -> None:
    """Each object has only children of the kinds that belong below it, so that no array can contain arrays."""
    if heads[message_id][0] != "Message":
        raise ReplyError(f"an object of kind {heads[message_id][0]!r} in place of the message")
    for kind, children, _ in heads.values():
        if kind == "Message" and len(children) > 1:
            raise ReplyError(f"a message with {len(children)} contents")
        for child in children:
            if child not in heads:
                raise ReplyError(f"an object of kind {kind!r} that refers to an object which was not sent")
            if heads[child][0] not in CHILDREN.get(kind, ()):
                raise ReplyError(f"an object of kind {heads[child][0]!r} below one of kind {kind!r}")


def _joined_bytes(body: bytes, sizes: list[int]) -> int:
    """The bytes of an array after its chunks of these sizes are joined, each as often as the array lists it."""
    indices = chunks_in(body)
    if not isinstance(indices, list) or not all(type(i) is int and 0 <= i < len(sizes) for i in indices):
        raise ReplyError("an array that does not say which chunks it consists of")
    return sum(sizes[i] for i in indices)


def check_values(message: Message, allowance: Allowance) -> None:
    """Raise ReplyError if a parsed reply has more, longer or larger values than allowed, on any Grid."""
    if not message.has_content():
        return
    content = message.content
    _check_extent(content, allowance)
    plain: tuple[Mapping[str, Any], ...] = (*metric_records(content).values(), *config_records(content).values())
    _at_most("metrics and values", sum(map(len, plain)), MAX_METRICS)
    for record in plain:
        for name, value in record.items():
            _at_most("characters in the name of a value", len(name), MAX_NAME)
            _check_value(name, value)


def _check_extent(content: RecordDict, allowance: Allowance) -> None:
    """Each record and array counts as often as it has a name: nodes can give one record thousands of names."""
    _at_most("records", len(content), MAX_RECORDS)
    for name in content:
        _at_most("characters in the name of a record", len(name), MAX_NAME)
    records = array_records(content).values()
    _at_most("arrays", sum(map(len, records)), allowance.most_arrays)
    size = sum(size_of(array) for record in records for array in record.values())
    _at_most("bytes in its arrays", size, allowance.most_bytes)


def _check_value(name: str, value: Any) -> None:
    if isinstance(value, list):
        _at_most(f"items in {name!r}", len(value), MAX_LIST)
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, (str, bytes)):
            _at_most(f"characters in {name!r}", len(item), MAX_TEXT)


def _at_most(what: str, count: int, most: int) -> None:
    if count > most:
        raise ReplyError(f"{count} {what}, at most {most} are allowed")
