"""Replies as objects: honest ones come out as they were, and no bytes raise anything but a reason."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crafted import KINDS, Node, as_node, craft, fixed, found, reply_to, sealed
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from hypothesis import given, settings
from hypothesis import strategies as st

from fedstride.arrays.named import views
from fedstride.arrays.on_device import records_bytes
from fedstride.errors import ReplyError
from fedstride.flower import identity
from fedstride.messages import limits, wire
from fedstride.messages.packed_arrays import PACKED, Packer, pack
from fedstride.messages.reply_objects import Allowance, check_values, parse

identity.set_identity()

PEAK, PARSED = 4, 30
"""docs/security.md: a reply costs at most 4 times its allowed bytes, and 30 times those to parse."""


def limit(allowance: Allowance) -> int:
    return PEAK * allowance.most_bytes + PARSED * allowance.most_plain_bytes


def sent(size: int = 5) -> Message:
    arrays = {"fc.weight": np.arange(2.0 * size, dtype=np.float32).reshape(2, size), "fc.bias": np.zeros(2)}
    content = RecordDict({wire.ARRAYS: ArrayRecord({k: Array(v) for k, v in arrays.items()})})
    content[wire.CONFIG] = ConfigRecord({"a": 1})
    message = Message(content, dst_node_id=2, message_type="train")
    identity.stamp(message)
    return message


ASKED = sent()
HONEST = reply_to(ASKED)
ALLOWED = Allowance.of(ASKED)


def received(crafted: Any, allowance: Allowance = ALLOWED) -> Message:
    """What the server makes of these objects."""
    message = parse(crafted.message_id, dict(crafted.contents), allowance)
    check_values(message, allowance)
    return message


def test_an_honest_reply_comes_out_as_it_went_in() -> None:
    objects = sealed(as_node(HONEST))
    assert objects.message_id == HONEST.object_id
    again = received(objects)
    assert list(again.content) == list(HONEST.content)
    assert again.content[wire.METRICS] == HONEST.content[wire.METRICS]
    for name, array in views(HONEST.content.array_records[wire.ARRAYS]).items():
        np.testing.assert_array_equal(views(again.content.array_records[wire.ARRAYS])[name], array)
    assert again.metadata.reply_to_message_id == ASKED.metadata.message_id
    assert again.metadata.message_id == HONEST.object_id


def test_a_packed_reply_comes_out_with_its_arrays() -> None:
    reply = reply_to(ASKED)
    expected = views(reply.content.array_records[wire.ARRAYS])
    reply.content = Packer().packed(reply.content)
    again = received(sealed(as_node(reply))).content
    assert again[wire.METRICS] == reply.content[wire.METRICS]
    for name, array in views(again.array_records[wire.ARRAYS]).items():
        np.testing.assert_array_equal(array, expected.pop(name))
    assert not expected


def test_a_packed_reply_with_too_many_arrays_is_refused() -> None:
    reply = reply_to(ASKED)
    many = {f"a{k}": Array(np.zeros(0)) for k in range(ALLOWED.most_arrays + 1)}
    reply.content[wire.ARRAYS] = ArrayRecord(many)
    reply.content = Packer().packed(reply.content)
    with pytest.raises(ReplyError, match=f"at most {ALLOWED.most_arrays} are allowed"):
        received(sealed(as_node(reply)))


@pytest.mark.parametrize("records", [1, 4])
def test_descriptions_of_packed_arrays_count_as_bytes_that_are_parsed(records: int) -> None:
    """Nested lists need 27 times their bytes; a model has far more bytes than may be parsed."""
    asked = sent(2_000_000)
    allowance = Allowance.of(asked)
    head = b"[" + b"[]," * (allowance.most_plain_bytes // 3 // records) + b"[]]"
    reply = reply_to(asked)
    for k in range(records):
        data = len(head).to_bytes(8, "big") + head + bytes([k])  # equal records are one object
        reply.content[f"pack{k}"] = ArrayRecord({PACKED: Array("uint8", (len(data),), PACKED, data)})
    objects = sealed(as_node(reply))
    with pytest.raises(ReplyError, match="bytes that describe a packed model, at most"):
        received(objects, allowance)
    assert peak(objects, allowance) < 4 * sum(map(len, objects.contents.values()))


def test_a_packed_reply_needs_no_more_memory_than_any_other() -> None:
    asked = sent(2_000_000)
    plain, packed = reply_to(asked), reply_to(asked)
    packed.content = Packer().packed(packed.content)
    most = 1.25 * peak(sealed(as_node(plain)), Allowance.of(asked))
    assert peak(sealed(as_node(packed)), Allowance.of(asked)) < most


@pytest.mark.slow
def test_the_largest_honest_reply_is_allowed() -> None:
    """All bounds at their largest values: names, lists, texts, metrics, and the arrays that are expected."""
    name = "n" * limits.MAX_NAME
    metrics: dict[str, Any] = {f"{i:0{limits.MAX_NAME}}": 0.5 for i in range(limits.MAX_METRICS - 3)}
    reply = reply_to(ASKED)
    reply.content[wire.METRICS] = MetricRecord({**metrics, "list": [0.5] * limits.MAX_LIST})
    reply.content[name] = ConfigRecord({"text": "x" * limits.MAX_TEXT, "texts": ["y" * limits.MAX_TEXT]})
    assert received(sealed(as_node(reply))).content[name]["text"] == "x" * limits.MAX_TEXT
    more = {f"array {i}": Array(np.ones(1)) for i in range(ALLOWED.most_arrays - 2)}
    reply.content[wire.ARRAYS] = ArrayRecord({**reply.content[wire.ARRAYS], **more})
    assert len(received(sealed(as_node(reply))).content[wire.ARRAYS]) == ALLOWED.most_arrays


SCREENED = {  # well-formed objects of an allowed size, which the screening rejects by what they say
    *("MetricRecord: empty", "ConfigRecord: in the place of metrics", "ArrayChunk: no array", "ArrayChunk: empty"),
    *("Array: a shape of petabytes", "Array: a negative shape", "Array: another dtype"),
    "Array: another kind of data",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_malformed_reply_is_a_reason_and_no_other_error(kind: str) -> None:
    crafted = craft(kind, reply_to(ASKED))
    if kind in SCREENED:
        assert isinstance(received(crafted), Message)
        return
    with pytest.raises(ReplyError) as error:
        received(crafted)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 600


def test_what_is_asked_back_is_allowed() -> None:
    """Records of arrays that come back count if they were not sent, and only then."""
    further = {"scaffold.control": {"fc.weight": np.zeros((2, 5), np.float32)}}
    with_returns = Allowance.of(ASKED, further)
    assert with_returns.arrays == ALLOWED.arrays + 1
    assert 40 < with_returns.array_bytes - ALLOWED.array_bytes < 2000
    assert Allowance.of(ASKED, {wire.ARRAYS: {"fc.weight": np.zeros((2, 5), np.float32)}}) == ALLOWED
    assert Allowance.of(Message(RecordDict(), dst_node_id=2, message_type="query")) == Allowance()


@pytest.mark.parametrize("repeats", [1, 2, 3000, 100_000])
def test_a_chunk_counts_as_often_as_it_is_listed(repeats: int) -> None:
    chunk = 2**16
    root = as_node(reply_to(ASKED))
    array = found(root, "Array")
    array.children = [Node("ArrayChunk", fixed(b"\x00" * chunk))]
    array.body = fixed(json.dumps({**json.loads(array.body([])), "arraychunk_ids": [0] * repeats}).encode())
    if repeats * chunk <= ALLOWED.array_bytes + limits.SPARE_BYTES - 2**16:
        received(sealed(root))
    else:
        with pytest.raises(ReplyError, match=r"\d+ bytes that its arrays declare, at most \d+"):
            received(sealed(root))


# ---------------------------------------------------------------- memory


def peak(crafted: Any, allowance: Allowance) -> int:
    """The largest amount of memory in use while the reply is parsed, its objects included.

    The larger one of two measurements: the growth of the process, and what Python allocates (exact, without the
    memory of protobuf). One after the other: to trace an allocation needs memory, too.
    """
    message_id, sizes = crafted.message_id, {key: len(value) for key, value in crafted.contents.items()}

    def read() -> None:
        contents = {key: bytes(bytearray(value)) for key, value in crafted.contents.items()}
        with contextlib.suppress(ReplyError):
            check_values(parse(message_id, contents, allowance), allowance)

    Path("/proc/self/clear_refs").write_text("5")  # the largest size of the process so far is forgotten
    before = memory("VmRSS")
    read()
    grown = memory("VmHWM") - before
    tracemalloc.start()
    try:
        read()
        traced = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert traced >= sum(sizes.values())
    return max(traced, grown)


def memory(kind: str) -> int:
    """Bytes of memory of this process."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(kind))
    return int(line.split()[1]) * 1024


def metric_bodies() -> dict[str, bytes]:
    """Bodies of one MiB that need as much memory as possible when they are parsed."""
    size = limits.PLAIN_BYTES - 2**12
    long_list = MetricRecord({"a": [0] * (size - 100)}).deflate()
    return {
        "empty items": b"\x0a\x00" * (size // 2),
        "one letter each": b"".join(b"\x0a\x08\x0a\x04%04x\x12\x00" % (i % 2**16) for i in range(size // 10)),
        "a list of zeros": long_list[long_list.index(b"\x00") + 1 :],
        "short lists": b"\x0a\x08\x0a\x02ab\x12\x02\x1a\x00" * (size // 10),
    }


@pytest.mark.slow
@pytest.mark.parametrize("body", metric_bodies())
@pytest.mark.parametrize("kind", ["MetricRecord", "ConfigRecord"])
def test_what_a_small_body_can_cost(kind: str, body: str) -> None:
    root = as_node(reply_to(ASKED))
    record = found(root, "MetricRecord")
    record.kind, record.body = kind, fixed(metric_bodies()[body])
    assert peak(sealed(root), ALLOWED) < limit(ALLOWED)


@pytest.mark.slow
@pytest.mark.parametrize("text", ["[", "[],", "{},"])
def test_what_nested_text_can_cost(text: str) -> None:
    for kind in ("RecordDict", "ArrayRecord", "Array"):
        root = as_node(reply_to(ASKED))
        size = limits.PLAIN_BYTES - 2**12
        found(root, kind).body = fixed(b"[" + text.encode() * (size // len(text)) + b"0]")
        assert peak(sealed(root), ALLOWED) < limit(ALLOWED)


@pytest.mark.parametrize(
    "kind", ["Array: one chunk, thousands of times", "Array: small bombs", "Array: made of an array"]
)
def test_a_bomb_costs_no_more_than_it_weighs(kind: str) -> None:
    """Flower alone would join 2 to 3 GB."""
    asked = sent(80_000)
    crafted = craft(kind, reply_to(asked))
    size = sum(map(len, crafted.contents.values()))
    assert size < 2**21
    assert peak(crafted, Allowance.of(asked)) < 2 * size + 16 * 2**20


def packed(arrays: dict[str, np.ndarray]) -> ArrayRecord:
    return pack(ArrayRecord({name: Array(array) for name, array in arrays.items()}))


ZEROS = np.zeros(50_000)
EXPANDS: dict[str, tuple[list[Any], int]] = {  # records of less than one MiB, and how many names they get
    "a packed record": ([packed({"w": ZEROS})], 9_000),
    "a packed record, fewer names": ([packed({"w": ZEROS})], 100),
    "two packed records": ([packed({"w": np.full(25_000, k)}) for k in (1, 2)], 100),
    "a packed record of many arrays": ([packed({f"{k}": np.zeros(0) for k in range(90)})], 100),
    "arrays": ([ArrayRecord({"w": Array(ZEROS)})], 9_000),
    "metrics": ([MetricRecord({"a": [0.5] * 10_000})], 9_000),
    "texts": ([ConfigRecord({"a": "x" * 100_000})], 9_000),
}


def with_names(node: Node, most: int) -> None:
    """The children of this node get so many names, in turn."""
    node.body = lambda ids: json.dumps({f"{k}": ids[k % len(ids)] for k in range(most)}).encode()


@pytest.mark.slow
@pytest.mark.parametrize("what", [*EXPANDS, "an array"])
def test_what_has_many_names_counts_as_often_and_is_unpacked_once(what: str) -> None:
    asked = sent(80_000)
    root = as_node(reply_to(asked))
    content = found(root, "RecordDict")
    if what == "an array":
        content.children = [as_node(ArrayRecord({"w": Array(ZEROS)}))]
        with_names(content.children[0], 9_000)
        with_names(content, 1)
    else:
        records, names = EXPANDS[what]
        content.children = [as_node(record) for record in records]
        with_names(content, names)
    crafted = sealed(root)
    with pytest.raises(ReplyError, match=r"^\d+ (records|arrays|bytes in its arrays), at most \d+ are allowed"):
        received(crafted, Allowance.of(asked))
    size = sum(map(len, crafted.contents.values()))
    assert peak(crafted, Allowance.of(asked)) < 4 * size + 16 * 2**20


@pytest.mark.parametrize("size", [100_000, 2_000_000])
def test_the_peak_of_the_largest_reply_that_is_allowed(size: int) -> None:
    """One array that joins as much as is allowed, from one chunk or from one that is listed many times."""
    asked = sent(size)
    allowance = Allowance.of(asked)
    for chunk in (2**16, allowance.most_bytes - 2**16):
        root = as_node(reply_to(asked))
        record = found(root, "ArrayRecord")
        record.children = record.children[:1]
        record.body = lambda ids: json.dumps({"fc.weight": ids[0]}).encode()
        array = found(root, "Array")
        array.children = [Node("ArrayChunk", fixed(b"\x01" * chunk))]
        repeats = (allowance.most_bytes - 2**12) // chunk
        array.body = fixed(json.dumps({**json.loads(array.body([])), "arraychunk_ids": [0] * repeats}).encode())
        assert repeats * chunk <= peak(sealed(root), allowance) < limit(allowance)


# ---------------------------------------------------------------- any bytes

KIND = st.sampled_from(
    ["Message", "RecordDict", "ArrayRecord", "Array", "ArrayChunk", "MetricRecord", "ConfigRecord"]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**64) | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["dtype", "shape", "stype", "arraychunk_ids", wire.ARRAYS, wire.METRICS]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@st.composite
def changed(draw: st.DrawFn) -> tuple[str, dict[str, bytes]]:
    """An honest reply of which some objects have other bodies, kinds, children, or changed bytes."""
    root = as_node(HONEST)
    nodes = list(root.below())
    for node in draw(st.lists(st.sampled_from(range(len(nodes))), min_size=1, max_size=3)):
        _change(draw, nodes[node], nodes)
    crafted = sealed(root)
    contents = dict(crafted.contents)
    if draw(st.booleans()):
        victim = draw(st.sampled_from(sorted(contents)))
        data = bytearray(contents[victim])
        for _ in range(draw(st.integers(1, 4))):
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        contents[victim] = bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)
    if draw(st.integers(0, 5)) == 0:
        contents.pop(draw(st.sampled_from(sorted(contents))))
    return crafted.message_id, contents


def _change(draw: st.DrawFn, node: Node, nodes: list[Node]) -> None:
    how = draw(st.sampled_from(["body", "json", "kind", "children", "leaf"]))
    if how == "body":
        node.body = fixed(draw(st.binary(max_size=60)))
    elif how == "json":
        node.body = fixed(json.dumps(draw(JSON)).encode())
    elif how == "kind":
        node.kind = draw(KIND)
    elif how == "children":
        node.children = node.children[: draw(st.integers(0, 2))] * draw(st.integers(1, 2))
    else:
        leaf = Node(draw(KIND), fixed(draw(st.binary(max_size=30))))
        node.children = [*node.children, leaf]


@st.composite
def random_trees(draw: st.DrawFn) -> tuple[str, dict[str, bytes]]:
    """Objects of any kinds in any order, with any bodies."""

    def node(depth: int) -> Node:
        body = draw(st.binary(max_size=40) | JSON.map(lambda value: json.dumps(value).encode()))
        children = [node(depth - 1) for _ in range(draw(st.integers(0, 2)))] if depth else []
        return Node(draw(KIND), fixed(body), children)

    root = node(draw(st.integers(0, 4)))
    root.kind = draw(st.sampled_from(["Message", root.kind]))
    crafted = sealed(root)
    return crafted.message_id, dict(crafted.contents)


@pytest.mark.slow
@settings(max_examples=3_000)
@given(st.one_of(changed(), random_trees()))
def test_thousands_of_replies_are_messages_or_reasons(objects: tuple[str, dict[str, bytes]]) -> None:
    message_id, contents = objects
    try:
        message = parse(message_id, contents, ALLOWED)
        check_values(message, ALLOWED)
    except ReplyError:
        return
    assert isinstance(message, Message)
    assert message.has_content() != message.has_error()
    if message.has_content():
        assert sum(map(records_bytes, message.content.array_records.values())) <= ALLOWED.most_bytes
