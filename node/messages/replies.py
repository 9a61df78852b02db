"""Makes a reply from what a message's process has handed over: bytes of objects, of which nothing is believed.

The metadata are made here, the ids are computed here, and each object must belong to the reply.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from fedstride.error_kinds import ErrorKind, Fault
from fedstride.errors import last_line
from fedstride.flower.for_nodes.connection import MessageHead
from fedstride.flower.for_nodes.message_forms import MOST_DEPTH, MOST_OBJECTS, reply_object
from fedstride.flower.for_superlinks.object_form import head_of, plain_record, references
from fedstride.messages import wire
from fedstride.tasks.spec import NORMALISATION

MOST_HEAD = 2**20
"""Bytes of an object's head: the ids of its parts."""

MOST_PLAIN = 64 * 2**10
"""Bytes of a record of plain values that is looked at."""

MOST_PLAIN_RECORDS, MOST_PLAIN_BYTES = 100, 2**20
"""Records of a message or reply that are looked at, and their bytes together."""

PLAIN = (b"ConfigRecord ", b"MetricRecord ")
"""How their objects begin."""

SHOWN = {
    wire.RUN: "study",
    wire.SERVER_ROUND: "round",
    wire.STRATEGY: "strategy",
    wire.PRIVACY: "privacy",
    wire.CLIPPING_NORM: "clipping_norm",
    wire.NOISE_MULTIPLIER: "noise_multiplier",
    wire.DESCRIPTION: "description",
    wire.MEMBERSHIP: "membership",
}
"""The keys of a message's configuration that are logged, each with its name in the log."""


FORM = ("spec.", "reading.")
"""How the keys begin that say what an example is."""

CRASHED = 8
"""Flower's code of the error for a message whose process ended without a reply."""


class FormError(Exception):
    """What a process has handed over is not a reply. The text is one line."""


class FinishedReply(NamedTuple):
    """A reply that can be sent."""

    message: bytes  # the message object
    tree: Mapping[str, tuple[str, ...]]  # the parts of each object, by id
    contents: Mapping[str, bytes]  # of all objects, by id
    error: str = ""  # what is not as it should be, for this node's own log
    refused: bool = False  # by this node; an app may use the same code
    examples: int | None = None  # their number, as the app says

    @property
    def size(self) -> int:
        """Its bytes."""
        return sum(map(len, self.contents.values()))


def refusal(to: MessageHead, node: int, told: Fault, reason: str) -> FinishedReply:
    """The reply of a node that does not process the message. `reason`: for this node's own log."""
    code = wire.WAITS if told.kind is ErrorKind.APPROVAL else wire.REFUSED
    return error_reply(to, node, code, told, reason)._replace(refused=True)


def error_reply(to: MessageHead, node: int, code: int, told: Fault, reason: str) -> FinishedReply:
    """A reply that is an error: the only place from which one leaves. `reason`: for this node's own log."""
    message = reply_object(to, node, "", (code, str(told)))
    message_id = hashlib.sha256(message).hexdigest()
    return FinishedReply(message, {}, {message_id: message}, f"code {code}: {last_line(reason)}")


def reply_of(to: MessageHead, node: int, root: str, objects: Mapping[str, bytes]) -> FinishedReply:
    """A reply with this content. `objects`: by the ids that were computed from their bytes.

    Raises FormError if the objects are not those of one record dictionary.
    """
    tree = _tree(root, objects)
    if head_of(objects[root], MOST_HEAD)[0] != "RecordDict":
        raise FormError("its content is not a RecordDict")
    message = reply_object(to, node, root)
    message_id = hashlib.sha256(message).hexdigest()
    return FinishedReply(message, {message_id: (root,), **tree}, {**objects, message_id: message})


def _tree(root: str, objects: Mapping[str, bytes]) -> dict[str, tuple[str, ...]]:
    """The parts of each object. Raises FormError if one is missing, left over, or nested too deeply.

    A part that several objects share counts for each of them: a SuperLink gets the tree with all its paths.
    """
    tree: dict[str, tuple[str, ...]] = {}
    paths, total = Counter({root: 1}), 1
    for _ in range(MOST_DEPTH):
        below: Counter[str] = Counter()
        for object_id, times in paths.items():
            if object_id not in tree:
                tree[object_id] = _parts(object_id, objects)
            total += times * len(tree[object_id])
            if total > MOST_OBJECTS:
                raise FormError(f"it has more than {MOST_OBJECTS} parts")
            for child in tree[object_id]:
                below[child] += times
        paths = below
        if not paths:
            break
    if paths:
        raise FormError(f"its parts are nested deeper than {MOST_DEPTH}")
    if len(tree) < len(objects):
        raise FormError("it has parts that do not belong to it")
    return tree


def _parts(object_id: str, objects: Mapping[str, bytes]) -> tuple[str, ...]:
    if object_id not in objects:
        raise FormError("a part of it is missing")
    try:
        return tuple(head_of(objects[object_id], MOST_HEAD)[1])
    except ValueError as error:
        raise FormError(f"a part of it has another form: {' '.join(str(error).split())[:100]}") from None


@dataclass(frozen=True)
class Contents:
    """What a message or a reply says in plain values.

    `names`: of all its records. `records`: those of plain values, of limited number and size. `unread`: the names
    of the others of plain values.
    """

    names: tuple[str, ...]
    records: Mapping[str, Mapping[str, Any]]
    unread: tuple[str, ...] = ()

    @classmethod
    def of_message(cls, message: str, objects: Mapping[str, bytes]) -> Contents:
        """Of the message with this id. Raises ValueError if it has no content."""
        try:
            (root,) = head_of(objects[message], MOST_HEAD)[1]
        except (KeyError, ValueError):
            raise ValueError("the message has no content") from None
        return cls.of(root, objects)

    @classmethod
    def of_reply(cls, root: str, objects: Mapping[str, bytes]) -> Contents:
        """Of the reply with this content: figures can be longer than settings. Raises ValueError if it is none."""
        return cls.of(root, objects, MOST_PLAIN_BYTES)

    @classmethod
    def of(cls, root: str, objects: Mapping[str, bytes], most: int = MOST_PLAIN) -> Contents:
        """Of the content with this id. `most`: bytes of a record that is read. Raises ValueError if it is none."""
        content = objects.get(root, b"")
        if head_of(content, MOST_HEAD)[0] != "RecordDict":
            raise ValueError("it has no records")
        ids = references(content, MOST_HEAD)
        first = sorted(ids.items(), key=lambda pair: pair[0] != wire.CONFIG)  # what decides most
        plain = {name: objects.get(object_id, b"") for name, object_id in first}
        plain = {name: content for name, content in plain.items() if content.startswith(PLAIN)}
        records = dict(_plain_records(plain.items(), most))
        return cls(tuple(ids), records, tuple(name for name in plain if name not in records))

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of a message, as the app reads them; empty if it has none."""
        return self.records.get(wire.CONFIG, {})

    def shown(self) -> dict[str, Any]:
        """What a message asks for, by the names in the log. Of several values, all are named."""
        by_name: dict[str, list[Any]] = {}
        for record in self.records.values():
            for key, name in SHOWN.items():
                if key in record and record[key] not in by_name.setdefault(name, []):
                    by_name[name].append(record[key])
        return {name: values[0] if len(values) == 1 else str(values) for name, values in by_name.items() if values}

    @property
    def run(self) -> str:
        """The word by which a message names its run; empty if it names none. Raises ValueError for several."""
        words = {record[wire.RUN] for record in self.records.values() if isinstance(record.get(wire.RUN), str)}
        if len(words) > 1:
            raise ValueError("the message names several runs")
        return str(words.pop()) if words else ""

    @property
    def examples(self) -> int | None:
        """The number of examples that a reply names; None if it names none."""
        counts = (record[wire.NUM_EXAMPLES] for record in self.records.values() if wire.NUM_EXAMPLES in record)
        return next((count for count in counts if type(count) is int), None)


def form_of(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The form of an example that a message asks for, without its normalisation.

    None if it says none, as those of other apps. Raises ValueError for values that are not plain.
    """
    form = {key: value for key, value in settings.items() if key.startswith(FORM) and key not in NORMALISATION}
    if form and not all(_is_plain(value) for value in form.values()):
        raise ValueError("the message describes its examples with values that are not plain")
    return form or None


def _is_plain(value: object) -> bool:
    return all(
        isinstance(entry, (bool, int, float, str)) for entry in (value if isinstance(value, list) else [value])
    )


def _plain_records(contents: Iterable[tuple[str, bytes]], most: int) -> Iterator[tuple[str, Any]]:
    """The first of these records of plain values, of limited number and size, by name."""
    left_bytes, left_records = MOST_PLAIN_BYTES, MOST_PLAIN_RECORDS
    for name, content in contents:
        if len(content) > most:
            continue
        left_bytes, left_records = left_bytes - len(content), left_records - 1
        if left_bytes < 0 or left_records < 0:
            return
        with contextlib.suppress(Exception):  # what the app or the server wrote may be anything
            record = plain_record(content, MOST_HEAD)
            if record is not None:
                yield name, record
