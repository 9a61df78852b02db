"""Replies as trees of objects that a hostile node builds by hand: what Flower's own classes would never deflate.

Each kind passes the SuperLink's own check (`validate_object_content`): the head names a known kind, the children's
ids are ids, the body has the stated length. So it is the server that must deal with it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.proto.message_pb2 import ObjectTree
from flwr.supercore.inflatable.inflatable_object import get_object_id

from fedstride.messages import wire

Body = Callable[[list[str]], bytes]
"""The body of an object, from its children's ids."""


@dataclass
class Node:
    """An object: its kind, its children, and its body."""

    kind: str
    body: Body
    children: list[Node] = field(default_factory=list)

    def content(self, ids: list[str]) -> bytes:
        body = self.body(ids)
        return f"{self.kind} {','.join(ids)} {len(body)}".encode() + b"\x00" + body

    def below(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.below()


@dataclass(frozen=True)
class Crafted:
    """What a node sends for one reply."""

    message_id: str
    contents: dict[str, bytes]
    tree: ObjectTree  # what the node says that the reply consists of
    withheld: frozenset[str] = frozenset()  # announced, and never sent


def sealed(root: Node) -> Crafted:
    """The objects of a tree, with the ids that its contents give."""
    contents: dict[str, bytes] = {}

    def seal(node: Node) -> ObjectTree:
        trees = list({tree.object_id: tree for tree in map(seal, node.children)}.values())
        content = node.content([tree.object_id for tree in trees])
        object_id = get_object_id(content)
        contents[object_id] = content
        return ObjectTree(object_id=object_id, children=trees)

    tree = seal(root)
    return Crafted(tree.object_id, contents, tree)


def fixed(body: bytes) -> Body:
    return lambda ids: body


def as_node(value: Any) -> Node:
    """A message or a record as an honest node would send it."""
    content = value.deflate()
    body = content[content.index(b"\x00") + 1 :]
    children = [as_node(child) for child in (value.children or {}).values()]
    kind = type(value).__name__
    if kind in ("RecordDict", "ArrayRecord"):
        names = list(value)
        places = [list(value.children).index(value[name].object_id) for name in names]

        def named(ids: list[str]) -> bytes:
            known = [*ids, *["0" * 64] * len(places)]  # a changed tree can have fewer children
            return json.dumps({name: known[i] for name, i in zip(names, places, strict=True)}).encode()

        return Node(kind, named, children)
    return Node(kind, fixed(body), children)


def reply_to(message: Message, client: int = 1) -> Message:
    """A valid reply: the model as it was sent, and the metrics that every reply has."""
    records: dict[str, Any] = dict(message.content.array_records) or {wire.ARRAYS: ArrayRecord()}
    metrics = {wire.NUM_EXAMPLES: 10, wire.CLIENT_ID: client, wire.TRAIN_LOSS: 0.5}
    return Message(RecordDict({**records, wire.METRICS: MetricRecord(metrics)}), reply_to=message)


# ---------------------------------------------------------------- kinds


def found(root: Node, kind: str) -> Node:
    return next(node for node in root.below() if node.kind == kind)


def with_body(kind: str, body: bytes | Body) -> Callable[[Node], None]:
    """The first object of this kind gets another body."""

    def change(root: Node) -> None:
        found(root, kind).body = fixed(body) if isinstance(body, bytes) else body

    return change


def array_says(**values: Any) -> Callable[[Node], None]:
    """The first array describes itself with other values; None removes one."""

    def change(root: Node) -> None:
        array = found(root, "Array")
        described = {**json.loads(array.body([])), **values}
        array.body = fixed(json.dumps({k: v for k, v in described.items() if v is not None}).encode())

    return change


def extra(record: Any, name: str = "extra") -> Callable[[Node], None]:
    """A further record in the reply."""

    def change(root: Node) -> None:
        content = found(root, "RecordDict")
        before = content.body
        content.children.append(as_node(record) if not isinstance(record, Node) else copy.deepcopy(record))
        content.body = lambda ids: json.dumps({**json.loads(before(ids[:-1])), name: ids[-1]}).encode()

    return change


def bomb(root: Node) -> None:
    """The first array lists its only chunk thousands of times: gigabytes from a few bytes."""
    array = found(root, "Array")
    size = len(array.children[0].body([]))
    described = json.loads(array.body([]))
    array.body = fixed(json.dumps({**described, "arraychunk_ids": [0] * (3 * 2**30 // size)}).encode())


def many_small_bombs(root: Node) -> None:
    """Each array joins no more than the model has; together they are a hundred times as large."""
    record = found(root, "ArrayRecord")
    chunk = Node("ArrayChunk", fixed(b"\x00" * 2**16))
    record.children += [
        Node("Array", fixed(json.dumps(_array([0] * 80, shape=[i])).encode()), [chunk]) for i in range(90)
    ]
    before = record.body
    own = len(record.children) - 90
    record.body = lambda ids: json.dumps(
        {**json.loads(before(ids[:own])), **{f"a{i}": each for i, each in enumerate(ids[own:])}}
    ).encode()


def arrays_of_arrays(root: Node) -> None:
    """An array whose chunks are another array, whose bytes it repeats."""
    inner = Node(
        "Array", fixed(json.dumps(_array([0] * 50)).encode()), [Node("ArrayChunk", fixed(b"\x00" * 2**16))]
    )
    outer = Node("Array", fixed(json.dumps(_array([0] * 1000)).encode()), [inner])
    record = found(root, "ArrayRecord")
    record.children = [inner, outer]
    record.body = lambda ids: json.dumps({"a": ids[0], "b": ids[1]}).encode()


def _array(chunks: list[int], shape: Any = (1,)) -> dict[str, Any]:
    return {"dtype": "float32", "shape": shape, "stype": "numpy.ndarray", "arraychunk_ids": chunks}


def too_large(root: Node) -> None:
    """A chunk that is larger than the model and everything beside it."""
    found(root, "ArrayChunk").body = fixed(b"\x01" * (40 * 2**20))


def many_objects(root: Node) -> None:
    """An array of thousands of chunks of one byte."""
    found(root, "Array").children = [Node("ArrayChunk", fixed(i.to_bytes(2, "little"))) for i in range(5000)]


def replaced(kind: str, node: Node) -> Callable[[Node], None]:
    """The first object of this kind becomes another one."""

    def change(root: Node) -> None:
        old = found(root, kind)
        old.kind, old.body, old.children = node.kind, node.body, copy.deepcopy(node.children)

    return change


def without_children(kind: str) -> Callable[[Node], None]:
    def change(root: Node) -> None:
        node = found(root, kind)
        node.body = fixed(node.body(["0" * 64] * len(node.children)))
        node.children = []

    return change


def two_contents(root: Node) -> None:
    root.children.append(Node("RecordDict", fixed(b"{}")))


def chunk_with_children(root: Node) -> None:
    found(root, "ArrayChunk").children = [Node("MetricRecord", fixed(b""))]


def repeated_names(root: Node) -> None:
    """The model under a hundred thousand names."""
    content = found(root, "ArrayRecord")
    content.body = lambda ids: json.dumps({f"{i:07}": ids[0] for i in range(100_000)}).encode()


def longer_head(root: Node) -> None:
    """A head of megabytes: one child is named again and again."""
    record = found(root, "ArrayRecord")
    content = record.content

    def repeating(ids: list[str]) -> bytes:
        body = record.body(ids)
        return f"ArrayRecord {','.join(ids * 20_000)} {len(body)}".encode() + b"\x00" + body

    assert content
    record.content = repeating  # type: ignore[method-assign]


DEEP = b"[" * 200_000
METRICS, CONFIG = MetricRecord(), ConfigRecord()
NO_JSON = {
    "empty": b"",
    "garbage": b"\xff\xfe[]",
    "a list": b"[]",
    "no names": b"{}",
    "null": b"null",
    "nested": DEEP,
}

KINDS: dict[str, Callable[[Node], None]] = {
    **{f"RecordDict: {what}": with_body("RecordDict", body) for what, body in NO_JSON.items()},
    **{f"ArrayRecord: {what}": with_body("ArrayRecord", body) for what, body in NO_JSON.items()},
    **{f"Array: {what}": with_body("Array", body) for what, body in NO_JSON.items()},
    "RecordDict: names of lists": with_body("RecordDict", b'{"arrays": [], "metrics": {}}'),
    "RecordDict: unknown ids": with_body("RecordDict", b'{"arrays": "' + b"0" * 64 + b'"}'),
    "RecordDict: in UTF-16": with_body("RecordDict", '{"a": "b"}'.encode("utf-16")),
    "RecordDict: an array in it": replaced("MetricRecord", Node("Array", fixed(json.dumps(_array([])).encode()))),
    "RecordDict: a message in it": replaced("MetricRecord", Node("Message", fixed(b""))),
    "RecordDict: no children": without_children("RecordDict"),
    "ArrayRecord: no children": without_children("ArrayRecord"),
    "ArrayRecord: a record in it": replaced("Array", Node("MetricRecord", fixed(b""))),
    "ArrayRecord: 100,000 names": repeated_names,
    "ArrayRecord: a head of megabytes": longer_head,
    "MetricRecord: garbage": with_body("MetricRecord", b"\xff\xfe[]"),
    "MetricRecord: a list": with_body("MetricRecord", b"[]"),
    "MetricRecord: a dict": with_body("MetricRecord", b"{}"),
    "MetricRecord: empty": with_body("MetricRecord", b""),
    "MetricRecord: a key without a value": with_body("MetricRecord", b"\x0a\x03\x0a\x01a"),
    "MetricRecord: a key that is no text": with_body("MetricRecord", b"\x0a\x04\x0a\x02\xff\xfe"),
    "MetricRecord: 100,000 keys": with_body(
        "MetricRecord", lambda ids: _body(MetricRecord({f"key {i}": 1 for i in range(50_000)}))
    ),
    "MetricRecord: a key of a megabyte": with_body(
        "MetricRecord", lambda ids: _body(MetricRecord({"k" * 2**19: 1}))
    ),
    "MetricRecord: a list of 3 million": with_body(
        "MetricRecord", lambda ids: _body(MetricRecord({"list": [1] * 3_000_000}))
    ),
    "MetricRecord: a list of 100,000": with_body(
        "MetricRecord", lambda ids: _body(MetricRecord({"list": [1] * 100_000}))
    ),
    "ConfigRecord: garbage": extra(Node("ConfigRecord", fixed(b"\xff\xfe[]"))),
    "ConfigRecord: a text of megabytes": extra(ConfigRecord({"text": "x" * 3_000_000})),
    "ConfigRecord: in the place of metrics": replaced("MetricRecord", Node("ConfigRecord", fixed(b""))),
    "a name of 10,000 characters": extra(ConfigRecord({"a": 1}), "n" * 10_000),
    "Array: no chunks named": array_says(arraychunk_ids=None),
    "Array: a chunk that it does not have": array_says(arraychunk_ids=[7]),
    "Array: a chunk counted from the end": array_says(arraychunk_ids=[-1]),
    "Array: chunks named by text": array_says(arraychunk_ids="0"),
    "Array: chunks named by lists": array_says(arraychunk_ids=[[0]]),
    "Array: chunks named by truth": array_says(arraychunk_ids=[False]),
    "Array: no shape": array_says(shape=None),
    "Array: a shape that is a number": array_says(shape=7),
    "Array: a shape of petabytes": array_says(shape=[2**60, 2**60]),
    "Array: a negative shape": array_says(shape=[-1]),
    "Array: another dtype": array_says(dtype="object"),
    "Array: a dtype that is a list": array_says(dtype=["float32"]),
    "Array: another kind of data": array_says(stype="torch.Tensor"),
    "Array: one chunk, thousands of times": bomb,
    "Array: small bombs": many_small_bombs,
    "Array: made of an array": arrays_of_arrays,
    "Array: 5,000 chunks": many_objects,
    "ArrayChunk: no array": with_body("ArrayChunk", b"no array"),
    "ArrayChunk: empty": with_body("ArrayChunk", b""),
    "ArrayChunk: of 40 MiB": too_large,
    "ArrayChunk: with children": chunk_with_children,
    "Message: garbage": lambda root: setattr(root, "body", fixed(b"\xff\xfe[]")),
    "Message: empty": lambda root: setattr(root, "body", fixed(b"")),
    "Message: two contents": two_contents,
    "Message: no content": without_children("Message"),
    "Message: a MetricRecord": replaced("Message", Node("MetricRecord", fixed(b""))),
    "Message: an ArrayRecord": replaced("Message", Node("ArrayRecord", fixed(b"{}"))),
    "Message: its content is an ArrayRecord": replaced("RecordDict", Node("ArrayRecord", fixed(b"{}"))),
}
"""Changes of an honest reply by name. The server rejects each of them, with a reason."""


def _body(record: Any) -> bytes:
    content = record.deflate()
    return bytes(content[content.index(b"\x00") + 1 :])


def craft(kind: str, reply: Message) -> Crafted:
    """The objects of this kind, made from an honest reply."""
    root = as_node(reply)
    KINDS[kind](root)
    return sealed(root)


def missing_object(reply: Message) -> Crafted:
    """An object that the message refers to is neither announced nor sent."""
    honest = sealed(as_node(reply))
    return replace(honest, tree=ObjectTree(object_id=honest.message_id))


def never_complete(reply: Message) -> Crafted:
    """An object that is announced never comes."""
    honest = sealed(as_node(reply))
    return replace(honest, withheld=frozenset([honest.message_id]))
