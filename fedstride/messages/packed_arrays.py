"""The arrays of a record as one array, so that a model travels in few objects.

A SuperLink keeps, announces and hands over each array of a message by itself, in requests of their own, and the
requests take longer than the bytes. A packed record has one array: a JSON list that describes the arrays, and then
their bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from flwr.app import Array, ArrayRecord, RecordDict

from .limits import MAX_NAME
from .records import array_records

PACKED = "fedstride.packed"
"""The name of a packed record's only array, and its `stype`."""

_LENGTH = 8  # bytes of the length of the description
_MOST_DIMENSIONS = 64


class Packer:
    """Packs contents. A record that several of them have, as a round's messages have the model, is packed once.

    The records must stay unchanged as long as this object is used.
    """

    def __init__(self) -> None:
        self._done: dict[int, tuple[ArrayRecord, ArrayRecord]] = {}  # by id: a record, which must not end, packed

    def packed(self, content: RecordDict) -> RecordDict:
        """The content with each of its records of arrays packed; the same object if it has none."""
        return _mapped(self._pack, content) if array_records(content) else content

    def _pack(self, record: ArrayRecord) -> ArrayRecord:
        if id(record) not in self._done:
            self._done[id(record)] = record, pack(record)
        return self._done[id(record)][1]


def unpacked(content: RecordDict, most_arrays: int | None = None, most_described: int | None = None) -> RecordDict:
    """The content with each packed record as it was; the same object if none is packed.

    A record that has several names is unpacked once. `most_arrays`: how many arrays all packed records together
    may have; `most_described`: the bytes that their descriptions together may have, as parsing needs a multiple of
    them. Raises ValueError for a packed record that does not describe its bytes, or for more than is allowed.
    """
    packs = {id(record): record for record in array_records(content).values() if is_packed(record)}
    if not packs:
        return content
    described = sum(_described(memoryview(record[PACKED].data)) for record in packs.values())
    if most_described is not None and described > most_described:
        raise ValueError(f"{described} bytes that describe a packed model, at most {most_described} are allowed")
    done: dict[int, ArrayRecord] = {}
    left = most_arrays
    for key, record in packs.items():
        done[key] = unpack(record, left)
        left = None if left is None else left - len(done[key])
    return _mapped(lambda record: done.get(id(record), record), content)


def is_packed(record: ArrayRecord) -> bool:
    """Whether this is a packed record."""
    return list(record) == [PACKED] and record[PACKED].stype == PACKED


def pack(record: ArrayRecord) -> ArrayRecord:
    """A record with the arrays of this one as its only array; `unpack` gives equal arrays in the same order."""
    described = [[name, a.dtype, list(a.shape), a.stype, len(a.data)] for name, a in record.items()]
    head = json.dumps(described).encode()
    data = b"".join([len(head).to_bytes(_LENGTH, "big"), head, *(array.data for array in record.values())])
    return ArrayRecord({PACKED: Array("uint8", (len(data),), PACKED, data)})


def unpack(record: ArrayRecord, most_arrays: int | None = None) -> ArrayRecord:
    """The record that was packed; this one if it is not packed. Raises ValueError, see `unpacked`."""
    if not is_packed(record):
        return record
    data = memoryview(record[PACKED].data)
    described, start = description(data, most_arrays), described_bytes(data)
    if start + sum(entry[-1] for entry in described) != len(data):
        raise ValueError("a packed model has not as many bytes as its description says")
    arrays: dict[str, Array] = {}
    for name, dtype, shape, stype, size in described:
        arrays[name] = Array(dtype, tuple(shape), stype, bytes(data[start : start + size]))
        start += size
    return ArrayRecord(arrays)


def described_bytes(data: memoryview) -> int:
    """How many of its first bytes describe a packed array, as it says; they may be more than it has."""
    return _LENGTH + _described(data)


def description(data: memoryview, most_arrays: int | None = None) -> list[Any]:
    """What the first bytes of a packed array say: name, dtype, shape, kind and number of bytes of each array.

    Raises ValueError, see `unpacked`.
    """
    try:
        described = json.loads(bytes(data[_LENGTH : described_bytes(data)]))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the description of a packed model cannot be read: {error}") from None
    if not isinstance(described, list) or not all(map(_is_description, described)):
        raise ValueError("the description of a packed model has another form")
    if most_arrays is not None and len(described) > most_arrays:
        raise ValueError(f"{len(described)} arrays in a packed model, at most {most_arrays} are allowed")
    if len({entry[0] for entry in described}) != len(described):
        raise ValueError("a packed model has two arrays with one name")
    return described


def _mapped(change: Callable[[ArrayRecord], ArrayRecord], content: RecordDict) -> RecordDict:
    """The content with each of its records of arrays changed."""
    records = content.items()
    return RecordDict({name: change(it) if isinstance(it, ArrayRecord) else it for name, it in records})


def _described(data: memoryview) -> int:
    """The bytes of the description, as a packed array says; they may be more than it has."""
    return int.from_bytes(data[:_LENGTH], "big")


def _is_description(value: Any) -> bool:
    if not (isinstance(value, list) and len(value) == 5):
        return False
    name, dtype, shape, stype, size = value
    texts = all(isinstance(text, str) and len(text) <= MAX_NAME for text in (name, dtype, stype))
    numbers = isinstance(shape, list) and len(shape) <= _MOST_DIMENSIONS
    return texts and numbers and all(type(n) is int and n >= 0 for n in [*shape, size])
