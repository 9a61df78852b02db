"""A process with several hostile nodes: they speak Flower's protocol and send what no SuperNode would send.

Over the transport of the installed Flower, as `fedstride node`.

`python hostile.py FLEET_ADDRESS FIRST_CLIENT CLIENTS NODES`. Node i takes part as client FIRST_CLIENT + i. It
replies to the roll call as an honest client would, with the real ClientApp, and to training with malformed objects
of the kinds i, i + NODES, i + 2 * NODES, ..., one a round.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from crafted import KINDS, Crafted, as_node, craft, missing_object, never_complete, reply_to, sealed
from flwr.app import Context, Message, RecordDict
from flwr.app.message.message import make_message
from flwr.app.metadata import Metadata
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PushMessagesRequest, PushMessagesResponse

from client_app.app import app
from fedstride.flower import identity
from fedstride.flower.for_nodes.connecting import connected
from fedstride.flower.for_nodes.connection import Arrived, LinkError, SuperLinkAddress
from fedstride.flower.for_nodes.fleet import FleetLink
from fedstride.flower.for_superlinks.object_form import inflate
from fedstride.messages import wire
from fedstride.messages.packed_arrays import unpacked

Maker = Callable[[Message], Crafted]

ALL: dict[str, Maker] = {
    **{kind: lambda reply, kind=kind: craft(kind, reply) for kind in KINDS},  # type: ignore[misc]
    "an object that is not announced": missing_object,
    "an object that never comes": never_complete,
}
"""What the nodes send, by name: at most one each round, in this order."""

UNASKED = "a message that nobody asked for"


def say(text: str) -> None:
    """Log a line; the nodes are threads of one process, and `print` writes the end of a line separately."""
    os.write(1, f"{text}\n".encode())


def kinds_of(node: int, nodes: int) -> list[str]:
    """The kinds that a node sends, one a round from round 1 on."""
    return list(ALL)[node::nodes]


def serve(address: str, client: int, clients: int, kinds: list[str]) -> None:
    """Connect as one node, and reply until the SuperLink is gone."""
    link = connected(SuperLinkAddress(address, insecure=True), None, wait=True, say=say)
    assert isinstance(link, FleetLink)
    say(f"client {client} is node {link.node_id}")
    while True:
        if (arrived := link.receive()) is None:
            time.sleep(2.0)  # a machine with few cores runs all of this
            continue
        message = pulled(link, arrived)
        if message.metadata.message_type == "query":
            node_config: Any = {"partition-id": client, "num-partitions": clients}
            context = Context(message.metadata.run_id, link.node_id, node_config, RecordDict(), {})
            push(link, message, sealed(as_node(app(message, context))))
        else:
            server_round = int(message.content[wire.CONFIG][wire.SERVER_ROUND])
            kind = kinds[(server_round - 1) % len(kinds)]
            attempt(link, message, kind, client, server_round)


def attempt(link: FleetLink, message: Message, kind: str, client: int, server_round: int) -> None:
    """Send one kind, and say what became of it: `sent`, or `refused` by the SuperLink."""
    push_unasked(link, message)
    outcome = "sent"
    try:
        push(link, message, ALL[kind](reply_to(message, client)))
    except Exception as error:
        outcome = f"refused ({type(error).__name__})"
    say(f"round {server_round}: client {client}: {outcome}: {kind}")


def pulled(link: FleetLink, arrived: Arrived) -> Message:
    """The message with its content, as a node fetches it, and unpacked; replies need not be packed."""
    run_id, contents = arrived.head.run, {}
    for object_id in arrived.objects:
        while object_id not in contents:
            try:
                contents[object_id] = link.content(run_id, object_id)
            except LinkError:
                time.sleep(0.05)
    link.confirm(run_id, arrived.head.id)
    whole = inflate(arrived.head.id, contents)
    whole.content = unpacked(whole.content)
    return whole


def push(link: FleetLink, asked: Message, crafted: Crafted, metadata: Metadata | None = None) -> None:
    """Send the objects as a SuperNode does: the message first, then what the SuperLink does not have yet."""
    envelope = Message(RecordDict(), reply_to=asked)
    if metadata is not None:
        envelope = make_message(metadata=metadata, content=RecordDict())
    envelope.metadata.__dict__["_src_node_id"] = link.node_id if metadata is None else metadata.src_node_id
    envelope.metadata.__dict__["_message_id"] = crafted.message_id
    request = PushMessagesRequest(
        node=link._node,
        messages_list=[message_to_proto(envelope)],
        message_object_trees=[crafted.tree],
        clientapp_runtime_list=[0.0],
    )
    answer = link._call("PushMessages", request, PushMessagesResponse)
    for object_id, content in crafted.contents.items():
        if object_id in answer.objects_to_push and object_id not in crafted.withheld:
            link.put(asked.metadata.run_id, answer.session_id, object_id, content)


def push_unasked(link: FleetLink, asked: Message) -> None:
    """A message to the server that replies to nothing, whose content cannot be parsed."""
    given = asked.metadata
    metadata = Metadata(
        run_id=given.run_id,
        message_id="",
        src_node_id=given.src_node_id,
        dst_node_id=given.src_node_id,
        reply_to_message_id="",
        group_id="",
        created_at=time.time(),
        ttl=3600.0,
        message_type="query",
    )
    try:
        push(link, asked, craft("RecordDict: garbage", reply_to(asked)), metadata)
    except Exception as error:
        say(f"refused ({type(error).__name__}): {UNASKED}")


def main() -> None:
    """Start the nodes, each in a thread."""
    address, first, clients, nodes = sys.argv[1], *map(int, sys.argv[2:])
    identity.set_identity()

    def run(i: int) -> None:
        try:
            serve(address, first + i, clients, kinds_of(i, nodes))
        except BaseException:
            traceback.print_exc()

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(nodes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
