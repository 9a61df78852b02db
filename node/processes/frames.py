"""The bytes between a node and the process of a message: one stream in each direction.

    "FSN", version (1 byte), then fields: kind (1 byte), length (8 bytes, big endian), content

The field END is the last one; bytes after it are ignored. What comes from the process of a message is not trusted:
it is read under bounds, nothing of it is executed, and the ids of objects are computed here.
"""

from __future__ import annotations

import enum
import hashlib
import io
import json
import re
import socket
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from fedstride.messages import wire

VERSION = 1
MAGIC = b"FSN"
SETTINGS_BYTES = 2**20
"""Maximum size of a request's settings."""

MOST_CODE = 2**31 - 1
_ERROR_BYTES = 65536
REASON_CHARACTERS = 10_000  # of an error: a character has at most six bytes in JSON
_HEAD = struct.Struct(">BQ")
_SENT_AT_ONCE = 64  # pieces; the system takes at most 1024
RECEIVED_AT_ONCE = 2**18
_ID = re.compile(rb"[0-9a-f]{64}")


class FrameError(Exception):
    """A stream that is not of the form above, or exceeds its bounds. The text is one line."""


class FieldKind(enum.IntEnum):
    """The kinds of fields."""

    END = 0  # no content
    SETTINGS = 1  # JSON
    OBJECT = 2  # one object of Flower, as it has them; its id is the SHA-256 of these bytes
    STATE = 3  # of the client, from message to message of a run series; not looked into
    ROOT = 4  # the id of the reply's content, which is one of the objects
    ERROR = 5  # JSON, {"code": int, "reason": str}


@dataclass(frozen=True)
class Bounds:
    """How much a reader accepts. `bytes` are those of all fields together; the other sizes are of one field."""

    objects: int = 20_000
    bytes: int = wire.MESSAGE_BYTES
    state: int = 64 * 2**20
    settings: int = 65536

    def of(self, kind: FieldKind) -> int:
        """The maximum length of a field."""
        if kind is FieldKind.OBJECT:
            return self.bytes
        sizes = {
            FieldKind.SETTINGS: self.settings,
            FieldKind.STATE: self.state,
            FieldKind.ROOT: 64,
            FieldKind.ERROR: _ERROR_BYTES,
        }
        return sizes.get(kind, 0)


UNTRUSTED = Bounds()
"""For answers."""

TRUSTED = Bounds(objects=2**62, bytes=2**62, state=2**62, settings=SETTINGS_BYTES)
"""For requests: the node has bounded what is in them."""


class Request(NamedTuple):
    """What a process needs to answer a message."""

    settings: dict[str, Any]
    objects: dict[str, bytes]  # by id
    state: bytes


class Answer(NamedTuple):
    """What a process makes of a message. An error has a code and a reason, and then there is no content."""

    root: str  # the id of the content; empty for an error
    objects: dict[str, bytes]  # by id
    error: tuple[int, str] | None
    state: bytes


# ---------------------------------------------------------------- reading


@dataclass
class Reader:
    """Reads a stream in the pieces in which it comes. `sender` and `reader` name the two sides in errors.

    Memory grows with what has arrived, whatever the lengths in the stream say.
    """

    bounds: Bounds
    sender: str = "the process of the message"
    reader: str = "this node"
    complete: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self._left = len(MAGIC) + 1  # bytes of the present part that have not arrived
        self._part = io.BytesIO()
        self._then: Callable[[bytes], None] = self._begin
        self._kind = FieldKind.END
        self._bytes = self._objects = 0
        self._contents: dict[str, bytes] = {}
        self._fields: dict[FieldKind, bytes] = {}

    def feed(self, data: bytes | memoryview) -> bool:
        """Read these bytes; whether the stream is complete. Raises FrameError."""
        rest = memoryview(data)
        while not self.complete:
            some = rest[: self._left]
            self._part.write(some)
            self._left -= len(some)
            rest = rest[len(some) :]
            if self._left:
                break
            part, self._part = self._part.getvalue(), io.BytesIO()  # without a copy
            self._then(part)
        return self.complete

    def request(self) -> Request:
        """What was read, as a request. Raises FrameError if it is none."""
        self._refuse({FieldKind.ROOT, FieldKind.ERROR})
        return Request(self._json(FieldKind.SETTINGS), self._contents, self._one(FieldKind.STATE))

    def answer(self) -> Answer:
        """What was read, as an answer. Raises FrameError if it is none."""
        self._refuse({FieldKind.SETTINGS})
        state = self._one(FieldKind.STATE)
        if (FieldKind.ROOT in self._fields) == (FieldKind.ERROR in self._fields):
            raise FrameError(f"{self.sender} sent both a content and an error, or neither")
        if FieldKind.ERROR in self._fields:
            if self._contents:
                raise FrameError(f"{self.sender} sent an error with objects")
            return Answer("", {}, self._error(), state)
        root = self._fields[FieldKind.ROOT]
        if not _ID.fullmatch(root):
            raise FrameError(f"{self.sender} sent something else than an id as that of its content")
        if root.decode() not in self._contents:
            raise FrameError(f"{self.sender} sent objects without the content that they belong to")
        return Answer(root.decode(), self._contents, None, state)

    # ------------------------------------------------------------ parts of the stream

    def _begin(self, part: bytes) -> None:
        if part[:-1] != MAGIC:
            raise FrameError(f"{self.sender} sent something else than fedstride's frames")
        if part[-1] != VERSION:
            raise FrameError(
                f"{self.sender} answers in version {part[-1]}, and {self.reader} understands {VERSION}; "
                "use one version of fedstride"
            )
        self._expect(_HEAD.size, self._head)

    def _head(self, part: bytes) -> None:
        number, length = _HEAD.unpack(part)
        try:
            kind = FieldKind(number)
        except ValueError:
            raise FrameError(f"{self.sender} sent a field of the unknown kind {number}") from None
        most = self.bounds.of(kind)
        if length > most:
            raise FrameError(f"{self.sender} sent {length} bytes as {kind.name}, and {most} are allowed")
        self._bytes += length
        if self._bytes > self.bounds.bytes:
            raise FrameError(f"{self.sender} sent more than {self.bounds.bytes} bytes")
        self._objects += kind is FieldKind.OBJECT
        if self._objects > self.bounds.objects:
            raise FrameError(f"{self.sender} sent more than {self.bounds.objects} objects")
        if kind in self._fields:
            raise FrameError(f"{self.sender} sent the field {kind.name} twice")
        self._kind = kind
        self._expect(length, self._content)

    def _content(self, part: bytes) -> None:
        if self._kind is FieldKind.OBJECT:
            self._contents[hashlib.sha256(part).hexdigest()] = part
        elif self._kind is FieldKind.END:
            self.complete = True
        else:
            self._fields[self._kind] = part
        self._expect(_HEAD.size, self._head)

    def _expect(self, length: int, then: Callable[[bytes], None]) -> None:
        self._left, self._then = length, then

    # ------------------------------------------------------------ fields

    def _refuse(self, kinds: set[FieldKind]) -> None:
        if not self.complete:
            raise FrameError(f"{self.sender} sent a part only")
        if wrong := kinds & self._fields.keys():
            raise FrameError(f"{self.sender} sent the field {min(wrong).name}, which does not belong there")

    def _one(self, kind: FieldKind) -> bytes:
        if kind not in self._fields:
            raise FrameError(f"{self.sender} sent no field {kind.name}")
        return self._fields[kind]

    def _json(self, kind: FieldKind) -> dict[str, Any]:
        try:
            values = json.loads(self._one(kind))
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise FrameError(f"{self.sender} sent something else than a JSON object as {kind.name}")
        return values

    def _error(self) -> tuple[int, str]:
        error = self._json(FieldKind.ERROR)
        code, reason = error.get("code"), error.get("reason")
        if type(code) is not int or abs(code) > MOST_CODE or not isinstance(reason, str):
            raise FrameError(f"{self.sender} sent an error without a code and a reason")
        return code, _writable(reason)


def receive_request(connected: socket.socket) -> Request:
    """Wait for a request, in the process of a message. Raises FrameError."""
    reader = Reader(TRUSTED, "the node", "its process")
    buffer = memoryview(bytearray(RECEIVED_AT_ONCE))
    while not reader.complete:
        size = connected.recv_into(buffer)
        if not size:
            break
        reader.feed(buffer[:size])
    return reader.request()


# ---------------------------------------------------------------- writing

Field = tuple[FieldKind, bytes]


class Writer:
    """Sends a stream as the other side takes it. Contents are not copied, and asked for when it is their turn."""

    def __init__(self, fields: Iterable[Field]) -> None:
        self._pieces = _pieces(fields)
        self._next: list[memoryview] = []

    def write(self, connected: socket.socket) -> bool:
        """Send what the socket takes now; whether everything is sent."""
        while self._fill():
            try:
                sent = connected.sendmsg(self._next)
            except BlockingIOError:
                return False
            while self._next and sent >= len(self._next[0]):
                sent -= len(self._next.pop(0))
            if sent:
                self._next[0] = self._next[0][sent:]
        return True

    def _fill(self) -> bool:
        if not self._next:
            self._next = list(islice(self._pieces, _SENT_AT_ONCE))
        return bool(self._next)


def _pieces(fields: Iterable[Field]) -> Iterator[memoryview]:
    yield memoryview(MAGIC + bytes([VERSION]))
    for kind, content in fields:
        yield memoryview(_HEAD.pack(kind, len(content)))
        if content:
            yield memoryview(content)
    yield memoryview(_HEAD.pack(FieldKind.END, 0))


def fields_of_request(request: Request) -> list[Field]:
    """The fields of a request. Raises FrameError if its settings are too large."""
    settings = json.dumps(request.settings).encode()
    if len(settings) > SETTINGS_BYTES:
        raise FrameError(f"the settings of the message have {len(settings)} bytes; {SETTINGS_BYTES} are allowed")
    objects = [(FieldKind.OBJECT, content) for content in request.objects.values()]
    return [(FieldKind.SETTINGS, settings), (FieldKind.STATE, request.state), *objects]


def fields_of_answer(root: str, contents: Iterable[bytes], state: bytes) -> Iterator[Field]:
    """The fields of a reply with a content, whose objects are asked for when they are sent."""
    yield FieldKind.STATE, state
    for content in contents:
        yield FieldKind.OBJECT, content
    yield FieldKind.ROOT, root.encode()


def fields_of_error(code: int, reason: str, state: bytes) -> list[Field]:
    """The fields of a reply with an error, whose text is cut in its middle if it is too long."""
    if len(reason) > REASON_CHARACTERS:
        half = REASON_CHARACTERS // 2 - 3
        reason = f"{reason[:half]} ... {reason[-half:]}"
    error = json.dumps({"code": code, "reason": _writable(reason)}, ensure_ascii=False).encode()
    return [(FieldKind.STATE, state), (FieldKind.ERROR, error)]


def send(connected: socket.socket, fields: Iterable[Field]) -> None:
    """Send a stream, and wait until the other side has taken it."""
    writer = Writer(fields)
    while not writer.write(connected):
        pass


def _writable(text: str) -> str:
    """The text without halves of characters, which have no bytes in UTF-8."""
    return text.encode("utf-8", "replace").decode()
