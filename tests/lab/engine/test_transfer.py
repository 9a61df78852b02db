"""Values arrive as they were sent, and what is large exists once for all messages that have it."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Message, RecordDict
from hypothesis import given
from hypothesis import strategies as st

from fedstride.arrays.named import to_record, views
from fedstride.flower import identity
from lab.engine.transfer import Packer, receive, send

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    pair = socket.socketpair()
    yield pair
    for end in pair:
        end.close()


def sent(value: Any) -> Any:
    """The value as it arrives at the other end."""
    mine, other = socket.socketpair()
    with mine, other:
        sender = threading.Thread(target=lambda: send(mine, Packer().pack(value)))
        sender.start()
        found = receive(other)
        sender.join()
        return found


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@pytest.mark.slow
@given(PLAIN)
def test_plain_values_arrive(value: Any) -> None:
    assert sent(value) == value


ARRAYS = {
    "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
    "turned": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    "slice": np.arange(10)[::3],
    "number": np.array(3, np.int64),
    "empty": np.zeros((0, 5), np.float16),
    "flags": np.array([True, False]),
}


def test_numpy_arrays_arrive_with_their_bits() -> None:
    found = sent(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        assert np.array_equal(found[name], array)


def message(value: int) -> Message:
    identity.set_identity()
    content = RecordDict({"arrays": to_record(ARRAYS), "config": ConfigRecord({"value": value})})
    return Message(content=content, dst_node_id=7, message_type="train")


def test_a_message_arrives() -> None:
    found = sent(message(5))
    assert found.metadata.dst_node_id == 7
    assert found.content.config_records["config"]["value"] == 5
    record = found.content.array_records["arrays"]
    for name, array in ARRAYS.items():
        assert isinstance(record[name].data, bytes)
        assert np.array_equal(views(record)[name], array)


def test_more_than_a_socket_holds_arrives() -> None:
    text, array = "x" * 3_000_000, np.arange(3_000_000)
    found = sent((text, array))
    assert found[0] == text
    assert np.array_equal(found[1], array)


def test_messages_with_the_same_model_share_one_copy() -> None:
    """As those of a round do; what differs is small."""
    identity.set_identity()
    model = to_record({"w": np.zeros(100_000, np.float32)})
    packer = Packer()
    parcels = [
        packer.pack(
            Message(RecordDict({"a": model, "c": ConfigRecord({"i": i})}), dst_node_id=i, message_type="train")
        )
        for i in range(1, 20)
    ]
    assert len({id(parcel.memory) for parcel in parcels}) == 1
    assert all(len(parcel.head) < 5_000 for parcel in parcels)
    other = packer.pack(to_record({"w": np.ones(100_000, np.float32)}))
    assert other.memory is not parcels[0].memory


def test_the_end_of_the_other_process_is_an_end_of_file(ends: Ends) -> None:
    ends[0].close()
    with pytest.raises(EOFError):
        receive(ends[1])


def test_an_end_in_the_middle_of_a_value_is_an_end_of_file(ends: Ends) -> None:
    parcel = Packer().pack("x" * 10_000)
    send(ends[0], parcel)
    content = ends[1].recv(1_000_000)
    one, two = socket.socketpair()
    with one, two:
        one.sendall(content[:-1])
        one.close()
        with pytest.raises(EOFError):
            receive(two)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the system has no list of open files")
def test_no_file_stays_open() -> None:
    sent(ARRAYS)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        sent(ARRAYS)
    assert len(os.listdir("/proc/self/fd")) == before
