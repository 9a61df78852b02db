"""Makes a reply from what a message's process has handed over: bytes of objects, of which nothing is believed.

The metadata are made here, the ids are computed here, and each object must belong to the reply.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fedstride import wire
from fedstride.flower.fleet import MOST_DEPTH, reply_object
from fedstride.flower.link import Head
from fedstride.flower.objects import head_of, plain_record

MOST_HEAD = 2**20
"""Bytes of an object's head: the ids of its parts."""

MOST_PLAIN = 64 * 2**10
"""Bytes of a record of plain values that is looked at."""

SHOWN = {
    wire.SERVER_ROUND: "round",
    wire.STRATEGY: "strategy",
    wire.PRIVACY: "privacy",
    wire.CLIPPING_NORM: "clipping_norm",
    wire.NOISE_MULTIPLIER: "noise_multiplier",
}
"""The keys of a message's configuration that are logged, each with its name in the log."""


class FormError(Exception):
    """What a process has handed over is no reply. The text is one line."""


class Reply(NamedTuple):
    """A reply that can be sent."""

    message: bytes  # the message object
    tree: Mapping[str, tuple[str, ...]]  # the parts of each object, by id
    contents: Mapping[str, bytes]  # of all objects, by id
    error: tuple[int, str] | None = None  # code and reason
    refused: bool = False  # by this node; an app may use the same code

    @property
    def size(self) -> int:
        """Its bytes."""
        return sum(map(len, self.contents.values()))


def refusal(to: Head, node: int, reason: str) -> Reply:
    """The reply of a node that does not process the message."""
    return error_reply(to, node, wire.REFUSED, reason)._replace(refused=True)


def error_reply(to: Head, node: int, code: int, reason: str) -> Reply:
    """A reply that is an error."""
    message = reply_object(to, node, "", (code, reason))
    own = hashlib.sha256(message).hexdigest()
    return Reply(message, {}, {own: message}, (code, reason))


def reply_of(to: Head, node: int, root: str, objects: Mapping[str, bytes]) -> Reply:
    """A reply with this content. `objects`: by the ids that were computed from their bytes.

    Raises FormError if the objects are not those of one record dictionary.
    """
    tree = _tree(root, objects)
    if head_of(objects[root], MOST_HEAD)[0] != "RecordDict":
        raise FormError("its content is no RecordDict")
    message = reply_object(to, node, root)
    own = hashlib.sha256(message).hexdigest()
    return Reply(message, {own: (root,), **tree}, {**objects, own: message})


def _tree(root: str, objects: Mapping[str, bytes]) -> dict[str, tuple[str, ...]]:
    """The parts of each object. Raises FormError if one is missing, left over, or nested too deeply."""
    found: dict[str, tuple[str, ...]] = {}
    level = [root]
    for _ in range(MOST_DEPTH):
        if not level:
            break
        for each in level:
            if each not in objects:
                raise FormError("a part of it is missing")
            try:
                found[each] = tuple(head_of(objects[each], MOST_HEAD)[1])
            except ValueError as error:
                raise FormError(f"a part of it has another form: {' '.join(str(error).split())[:100]}") from None
        level = [child for each in level for child in found[each] if child not in found]
    if level:
        raise FormError(f"its parts are nested deeper than {MOST_DEPTH}")
    if len(found) < len(objects):
        raise FormError("it has parts that do not belong to it")
    return found


def asked(contents: Iterable[bytes]) -> dict[str, Any]:
    """What the values in a message ask for, by the names in the log."""
    records = _plain_records(contents)
    return {name: record[key] for record in records for key, name in SHOWN.items() if key in record}


def examples_in(contents: Iterable[bytes]) -> int | None:
    """The number of examples that a reply names; None if it names none."""
    counts = [record[wire.NUM_EXAMPLES] for record in _plain_records(contents) if wire.NUM_EXAMPLES in record]
    return next((count for count in counts if type(count) is int), None)


def _plain_records(contents: Iterable[bytes]) -> list[Any]:
    """The records of plain values among these objects, without those that are too large or of another form."""
    found = []
    for content in contents:
        if len(content) <= MOST_PLAIN:
            with contextlib.suppress(Exception):  # what the app or the server wrote may be anything
                record = plain_record(content, MOST_HEAD)
                if record is not None:
                    found.append(record)
    return found
