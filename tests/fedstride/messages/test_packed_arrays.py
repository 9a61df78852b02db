"""A packed model has the same bits in fewer objects, and wrong bytes are an error."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord, RecordDict
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hn

from fedstride.arrays.named import to_record
from fedstride.messages.packed_arrays import PACKED, Packer, is_packed, pack, unpack, unpacked

ARRAYS = st.dictionaries(
    st.text(max_size=20),
    hn.arrays(
        st.sampled_from([np.float32, np.float64, np.int64, np.float16, np.bool_]),
        hn.array_shapes(min_dims=0, min_side=0),
    ),
    max_size=6,
)


def same(found: ArrayRecord, expected: ArrayRecord) -> bool:
    return [(n, a.dtype, a.shape, a.stype, a.data) for n, a in found.items()] == [
        (n, a.dtype, tuple(a.shape), a.stype, a.data) for n, a in expected.items()
    ]


@pytest.mark.slow
@given(ARRAYS)
def test_unpacking_gives_the_same_arrays_in_the_same_order(arrays: dict[str, np.ndarray]) -> None:
    record = to_record(arrays)
    assert is_packed(pack(record)) and len(pack(record)) == 1
    assert same(unpack(pack(record)), record)


def test_what_is_not_packed_stays_as_it_is() -> None:
    record = to_record({"a": np.zeros(3), PACKED: np.zeros(2)})
    assert unpack(record) is record
    own = to_record({PACKED: np.zeros(2)})  # a user's array with this name
    assert unpack(own) is own and same(unpack(pack(own)), own)
    plain = RecordDict({"config": ConfigRecord({"a": 1}), "metrics": MetricRecord({"b": 2.0})})
    assert Packer().packed(plain) is plain and unpacked(plain) is plain


def test_all_records_of_a_content_are_packed_and_the_others_kept() -> None:
    model, control = to_record({"w": np.ones((2, 3), np.float32)}), to_record({"c": np.zeros(1)})
    content = RecordDict({"arrays": model, "config": ConfigRecord({"a": 1}), "scaffold.control": control})
    sent = Packer().packed(content)
    assert list(sent) == list(content) and all(map(is_packed, sent.array_records.values()))
    back = unpacked(sent)
    assert list(back) == list(content) and back["config"] == content["config"]
    assert same(back["arrays"], model) and same(back["scaffold.control"], control)


def test_a_record_that_several_contents_have_is_packed_once() -> None:
    model, packer = to_record({"w": np.ones(3)}), Packer()
    contents = [RecordDict({"arrays": model, "config": ConfigRecord({"k": k})}) for k in (1, 2)]
    first, second = map(packer.packed, contents)
    assert first["arrays"] is second["arrays"] and first["config"] != second["config"]


def broken(described: object, data: bytes = b"") -> ArrayRecord:
    head = described if isinstance(described, bytes) else json.dumps(described).encode()
    content = len(head).to_bytes(8, "big") + head + data
    return ArrayRecord({PACKED: Array("uint8", (len(content),), PACKED, content)})


GOOD = ["a", "float32", [1], "numpy.ndarray", 4]


@pytest.mark.parametrize(
    "record",
    [
        broken(b""),
        broken(b"\xff\xfe"),
        broken(b"[" * 100_000),
        broken({"a": GOOD}),
        broken([GOOD], b"123"),
        broken([GOOD], b"12345"),
        broken([GOOD, GOOD], b"12345678"),
        broken([[*GOOD[:4], -4]]),
        broken([[*GOOD[:4], True]], b"1"),
        broken([[*GOOD[:4], 10**30]]),
        broken([["a" * 201, *GOOD[1:]]], b"1234"),
        broken([[None, *GOOD[1:]]], b"1234"),
        broken([["a", "float32", [-1], "numpy.ndarray", 4]], b"1234"),
        broken([["a", "float32", [1] * 65, "numpy.ndarray", 4]], b"1234"),
        broken([GOOD[:4]]),
        ArrayRecord({PACKED: Array("uint8", (3,), PACKED, b"\xff\xff\xff")}),
        ArrayRecord({PACKED: Array("uint8", (8,), PACKED, b"\xff" * 8)}),
        ArrayRecord({PACKED: Array("uint8", (0,), PACKED, b"")}),
    ],
)
def test_bytes_that_no_packing_has_made_are_refused(record: ArrayRecord) -> None:
    with pytest.raises(ValueError, match="packed model"):
        unpack(record)


@given(st.binary(max_size=200))
def test_any_bytes_are_arrays_or_a_value_error(data: bytes) -> None:
    record = ArrayRecord({PACKED: Array("uint8", (len(data),), PACKED, data)})
    with contextlib.suppress(ValueError):
        assert sum(len(a.data) for a in unpack(record).values()) <= len(data)


def test_a_packed_model_has_at_most_so_many_arrays() -> None:
    record = pack(to_record({f"a{k}": np.zeros(0) for k in range(10)}))
    assert len(unpack(record, 10)) == 10
    with pytest.raises(ValueError, match="10 arrays in a packed model, at most 9"):
        unpack(record, 9)


def test_a_record_with_many_names_is_unpacked_once() -> None:
    """Also where nothing bounds the names: the bytes of the arrays exist once."""
    one = pack(to_record({"w": np.zeros(1000)}))
    back = unpacked(RecordDict({**{f"{k}": one for k in range(9000)}, "other": to_record({"w": np.zeros(3)})}))
    assert len(back) == 9001 and len({id(record) for record in back.values()}) == 2


def test_all_packed_records_together_have_at_most_so_many_arrays() -> None:
    content = RecordDict({f"{k}": pack(to_record({f"a{i}": np.full(1, k) for i in range(4)})) for k in range(3)})
    assert len(unpacked(content, 12)) == 3
    with pytest.raises(ValueError, match="4 arrays in a packed model, at most 3"):
        unpacked(content, 11)
