"""What a node reads of the process of a message, of any form; and that both sides understand each other."""

from __future__ import annotations

import hashlib
import json
import socket
import struct
import threading
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node.processes import frames
from node.processes.frames import Answer, Bounds, Field, FieldKind, FrameError, Reader, Request, Writer

SMALL = Bounds(objects=3, bytes=1000, state=100, settings=200)
CONTENT = b"an object"
ID = hashlib.sha256(CONTENT).hexdigest()

RECORDED = bytes.fromhex(
    "46534e01"
    "03" "0000000000000002" "7374"
    "02" "0000000000000009" "616e206f626a656374"
    "04" "0000000000000040" + ID.encode().hex() + "00" "0000000000000000"
)  # fmt: skip
"""An answer in version 1, as it must be understood for as long as the version is 1."""


def stream(*fields: Field) -> bytes:
    return b"".join(frames._pieces(fields))


def field(kind: int, content: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack(">BQ", kind, len(content) if length is None else length) + content


def read(data: bytes, bounds: Bounds = SMALL) -> Answer:
    reader = Reader(bounds)
    reader.feed(data)
    return reader.answer()


def refused(data: bytes, bounds: Bounds = SMALL) -> str:
    with pytest.raises(FrameError) as caught:
        read(data, bounds)
    text = str(caught.value)
    assert text.isprintable()
    return text


def good(content: bytes = CONTENT, state: bytes = b"st") -> bytes:
    return stream(*frames.fields_of_answer(hashlib.sha256(content).hexdigest(), [content], state))


# ---------------------------------------------------------------- both sides


def test_the_form_of_a_version_does_not_change() -> None:
    assert good() == RECORDED
    assert read(RECORDED) == Answer(ID, {ID: CONTENT}, None, b"st")


def test_an_error_is_carried_with_the_state() -> None:
    assert read(stream(*frames.fields_of_error(-3, "bad \ud800 \n\0", b"st"))) == Answer(
        "", {}, (-3, "bad ? \n\0"), b"st"
    )


@given(st.text(min_size=9, max_size=20).map(lambda text: text * 1000))
def test_a_reason_of_any_length_fits(reason: str) -> None:
    answer = read(stream(*frames.fields_of_error(2, reason, b"")), Bounds())
    assert answer.error is not None
    assert len(answer.error[1]) <= frames.REASON_CHARACTERS
    assert answer.error[1][:9] == reason[:9]
    assert answer.error[1][-9:] == reason[-9:]


@pytest.mark.parametrize("character", ["\0", "\U0010ffff", '"', "é"])
def test_a_long_reason_of_characters_that_need_many_bytes_fits(character: str) -> None:
    answer = read(stream(*frames.fields_of_error(2, character * 20_000, b"")), Bounds())
    assert answer.error is not None
    assert answer.error[1].startswith(character * 4000)


def test_a_request_arrives_as_it_was_sent_through_a_socket_that_takes_little() -> None:
    contents = [bytes([n]) * (n * 50_000) for n in range(1, 9)] + [bytes(7)] * 200
    objects = {hashlib.sha256(each).hexdigest(): each for each in contents}
    request = Request({"folder": "/x", "run": 2**63, "node_config": {"a": 1.5, "b": True}}, objects, b"state")
    ours, theirs = socket.socketpair()
    received: list[Request] = []
    with ours, theirs:
        thread = threading.Thread(target=lambda: received.append(frames.receive_request(theirs)))
        thread.start()
        frames.send(ours, frames.fields_of_request(request))
        thread.join()
    assert received == [request]


def test_what_is_sent_is_not_copied() -> None:
    content = bytes(1000)
    pieces = list(frames._pieces([(FieldKind.OBJECT, content)]))
    assert any(piece.obj is content for piece in pieces)


def test_a_writer_goes_on_where_the_socket_stopped() -> None:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        writer = Writer([(FieldKind.OBJECT, bytes(10**6)), (FieldKind.STATE, b"")])
        reader, turns = Reader(Bounds()), 0
        while not writer.write(ours):
            turns += 1
            reader.feed(theirs.recv(2**16))
        while not reader.complete:
            reader.feed(theirs.recv(2**16))
    assert turns > 3
    assert list(reader._contents.values()) == [bytes(10**6)]


def test_settings_that_are_too_large_are_not_sent() -> None:
    with pytest.raises(FrameError, match="the settings of the message have"):
        frames.fields_of_request(Request({"overrides": {"a": "b" * frames.SETTINGS_BYTES}}, {}, b""))


# ---------------------------------------------------------------- what is refused


def test_another_version_is_named() -> None:
    """A recorded beginning of a later version."""
    text = "answers in version 2, and this node understands 1; use one version of fedstride"
    assert refused(bytes.fromhex("46534e02")) == f"the process of the message {text}"


@pytest.mark.parametrize(
    ("data", "part"),
    [
        (b"\x80\x05\x95pickle", "something else than fedstride's frames"),
        (b"HTTP/1.1 200 OK", "something else than fedstride's frames"),
        (b"FSN\1" + field(6), "unknown kind 6"),
        (b"FSN\1" + field(255), "unknown kind 255"),
        (b"FSN\1" + field(FieldKind.END, b"x"), "1 bytes as END, and 0 are allowed"),
        (b"FSN\1" + field(FieldKind.OBJECT, length=2**64 - 1), "and 1000 are allowed"),
        (b"FSN\1" + field(FieldKind.STATE, length=101), "101 bytes as STATE, and 100 are allowed"),
        (b"FSN\1" + field(FieldKind.ROOT, length=65), "65 bytes as ROOT, and 64 are allowed"),
        (b"FSN\1" + field(FieldKind.ERROR, length=65537), "65537 bytes as ERROR"),
        (b"FSN\1" + field(FieldKind.SETTINGS, length=201), "201 bytes as SETTINGS"),
        (
            b"FSN\1" + field(FieldKind.OBJECT, bytes(500)) + field(FieldKind.OBJECT, length=501),
            "more than 1000 bytes",
        ),
        (b"FSN\1" + field(FieldKind.OBJECT, b"x") * 4, "more than 3 objects"),
        (b"FSN\1" + field(FieldKind.STATE) * 2, "the field STATE twice"),
        (b"", "a part only"),
        (good()[:-1], "a part only"),
        (stream((FieldKind.STATE, b"")), "both a content and an error, or neither"),
        (
            stream((FieldKind.STATE, b""), (FieldKind.ROOT, ID.encode()), (FieldKind.ERROR, b"{}")),
            "both a content and an error",
        ),
        (stream((FieldKind.ROOT, ID.encode()), (FieldKind.OBJECT, CONTENT)), "no field STATE"),
        (stream((FieldKind.STATE, b""), (FieldKind.ROOT, b"a" * 64)), "without the content that they belong to"),
        (stream((FieldKind.STATE, b""), (FieldKind.ROOT, b"A" * 64)), "something else than an id"),
        (stream((FieldKind.STATE, b""), (FieldKind.ROOT, b"")), "something else than an id"),
        (
            stream((FieldKind.STATE, b""), (FieldKind.ERROR, b"{}"), (FieldKind.OBJECT, b"x")),
            "an error with objects",
        ),
        (
            stream((FieldKind.STATE, b""), (FieldKind.ERROR, b"{}"), (FieldKind.SETTINGS, b"{}")),
            "SETTINGS, which does not belong",
        ),
    ],
)
def test_what_is_refused(data: bytes, part: str) -> None:
    assert part in refused(data)


@pytest.mark.parametrize(
    "error",
    [
        b"",
        b"null",
        b"[" * 60_000,
        b"\xff",
        b"{}",
        b'{"code": true, "reason": "x"}',
        b'{"code": 1e9, "reason": "x"}',
        b'{"code": 1}',
        b'{"code": 1, "reason": 2}',
        b'{"code": ' + b"9" * 5000 + b', "reason": "x"}',
        b'{"code": 2147483648, "reason": "x"}',
    ],
)
def test_an_error_of_another_form_is_refused(error: bytes) -> None:
    assert (
        "ERROR" in (text := refused(stream((FieldKind.STATE, b""), (FieldKind.ERROR, error)), Bounds()))
        or "code" in text
    )


def test_halves_of_characters_in_a_reason_can_be_written() -> None:
    error = json.dumps({"code": 1, "reason": "\ud800"}).encode()
    assert read(stream((FieldKind.STATE, b""), (FieldKind.ERROR, error))).error == (1, "?")


def test_a_request_is_no_answer_and_an_answer_no_request() -> None:
    reader = Reader(SMALL)
    reader.feed(good())
    with pytest.raises(FrameError, match="ROOT, which does not belong there"):
        reader.request()


def test_ids_are_computed_and_what_follows_is_ignored() -> None:
    """A process cannot say under which id a content is sent on, and can send no second answer."""
    other = stream(*frames.fields_of_error(1, "second", b""))
    assert read(good() + other + bytes(5000)) == read(good())
    assert list(read(good(b"another")).objects) == [hashlib.sha256(b"another").hexdigest()]


def test_memory_grows_with_what_arrives_and_not_with_what_is_declared() -> None:
    reader = Reader(Bounds())
    reader.feed(b"FSN\1" + field(FieldKind.OBJECT, b"some", length=4 * 2**30))
    assert reader._part.__sizeof__() < 10_000


# ---------------------------------------------------------------- anything at all


def outcome(pieces: list[bytes]) -> Any:
    reader = Reader(SMALL)
    try:
        for piece in pieces:
            reader.feed(piece)
        return reader.answer()
    except FrameError as error:
        return str(error)


@given(st.binary(max_size=300))
def test_any_bytes_are_an_error_and_nothing_else(data: bytes) -> None:
    assert isinstance(outcome([data]), str)
    assert isinstance(outcome([b"FSN\1" + data]), str)


@given(
    st.lists(
        st.tuples(st.integers(0, 6), st.binary(max_size=120), st.none() | st.integers(0, 2**64 - 1)), max_size=8
    ),
    st.lists(st.integers(0, 400), max_size=8),
)
def test_any_fields_in_any_pieces_have_one_meaning(
    fields: list[tuple[int, bytes, int | None]], cuts: list[int]
) -> None:
    data = b"FSN\1" + b"".join(field(*each) for each in fields)
    borders = [0, *sorted(cuts), len(data)]
    pieces = [data[start:end] for start, end in pairwise(borders)]
    assert outcome(pieces) == outcome([data]) == outcome([bytes([byte]) for byte in data])


@given(st.binary(max_size=99), st.lists(st.binary(min_size=1, max_size=200), max_size=2), st.integers(1, 50))
def test_what_is_sent_is_what_is_read(state: bytes, contents: list[bytes], size: int) -> None:
    contents = [*contents, CONTENT]
    data = stream(*frames.fields_of_answer(ID, contents, state))
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    objects = {hashlib.sha256(each).hexdigest(): each for each in contents}
    assert outcome(pieces) == Answer(ID, objects, None, state)
