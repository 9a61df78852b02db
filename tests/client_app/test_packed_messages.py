"""A packed message gets a packed reply, any other one a reply as it is."""

from __future__ import annotations

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict

from client_app.packed_messages import unpacked_and_packed
from fedstride.arrays.named import to_record, views
from fedstride.errors import ConfigError
from fedstride.flower import identity
from fedstride.messages.packed_arrays import PACKED, Packer, is_packed, unpack

identity.set_identity()
CONTEXT = Context(run_id=1, node_id=2, node_config={}, state=RecordDict(), run_config={})


def asked(content: RecordDict) -> Message:
    message = Message(content, dst_node_id=2, message_type="train")
    identity.stamp(message)
    return message


def doubles(message: Message, context: Context) -> Message:
    model = {name: 2 * array for name, array in views(message.content.array_records["arrays"]).items()}
    return Message(RecordDict({"arrays": to_record(model)}), reply_to=message)


@pytest.mark.parametrize("packs", [True, False])
def test_the_reply_is_as_the_message(packs: bool) -> None:
    content = RecordDict({"arrays": to_record({"w": np.ones(3)}), "config": ConfigRecord()})
    reply = unpacked_and_packed(asked(Packer().packed(content) if packs else content), CONTEXT, doubles)
    record = reply.content.array_records["arrays"]
    assert is_packed(record) == packs
    np.testing.assert_array_equal(views(unpack(record))["w"], [2.0, 2.0, 2.0])


def test_an_error_is_passed_on() -> None:
    def fails(message: Message, context: Context) -> Message:
        return Message(Error(0, "no"), reply_to=message)

    content = RecordDict({"arrays": to_record({"w": np.ones(3)})})
    assert unpacked_and_packed(asked(Packer().packed(content)), CONTEXT, fails).has_error()


def test_a_damaged_model_is_an_error_in_one_line() -> None:
    content = RecordDict({"arrays": ArrayRecord({PACKED: Array("uint8", (3,), PACKED, b"abc")})})
    with pytest.raises(ConfigError, match=r"no model that can be read: .* packed model"):
        unpacked_and_packed(asked(content), CONTEXT, doubles)
