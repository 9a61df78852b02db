"""The requests of a node to a SuperLink's Fleet API, the same on each transport (Flower 1.39 to 1.42).

The messages are those of `flwr.proto`, which are the same in these versions. Flower's own connection is not used:
it repeats requests by itself, ends the process, takes answers of any size, and follows redirects.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections.abc import Mapping
from typing import Protocol, TypeVar

from flwr.proto.fab_pb2 import GetFabRequest, GetFabResponse
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    DeactivateNodeRequest,
    DeactivateNodeResponse,
    PullMessagesRequest,
    PullMessagesResponse,
    PushMessagesRequest,
    PushMessagesResponse,
    RegisterNodeFleetRequest,
    RegisterNodeFleetResponse,
    UnregisterNodeFleetRequest,
    UnregisterNodeFleetResponse,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest, SendNodeHeartbeatResponse
from flwr.proto.message_pb2 import (
    ConfirmMessageReceivedRequest,
    ConfirmMessageReceivedResponse,
    PullObjectRequest,
    PullObjectResponse,
    PushObjectRequest,
    PushObjectResponse,
)
from flwr.proto.message_pb2 import Message as MessageProto
from flwr.proto.node_pb2 import Node
from flwr.proto.run_pb2 import GetRunRequest, GetRunResponse
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Protobuf

from .connection import (
    ANSWER_BYTES,
    AnnouncedRun,
    AnswerError,
    Arrived,
    Bundle,
    KeyRefusedError,
    LinkError,
    Missing,
    NotThereYetError,
    RunGoneError,
)
from .message_forms import head_of, object_tree, objects_in, plain_value
from .request_keys import Keys, RequestSignature

HEARTBEAT_SECONDS = 30.0
"""The SuperLink believes that a node is gone after twice this time without a heartbeat."""

HEARTBEAT_EVERY, HEARTBEAT_AGAIN = 20.0, 3.0
"""Seconds between two heartbeats, and after one that failed."""

GOODBYE_SECONDS = 3.0
"""For the last answers, when the node ends."""

MOST_SMALL = 2 * 2**20
"""Bytes of an answer that has neither an object nor an app nor a tree of objects."""

KEYLESS, KEY = 2001, 2004
REFUSALS = {
    KEYLESS: "the SuperLink accepts registered keys only, and this node has none (code 2001): give "
    "--auth-supernode-private-key, and register its public key with fedstride register",
    KEY: "the SuperLink does not accept this node's key (code 2004): it is not registered there (see fedstride "
    "register), or another node with it is connected, or was within the last minute",
}
"""What Flower's codes for a node that may not join mean (1.39 to 1.42)."""

_CODE = re.compile(r'"code":\s*(\d+)')

T = TypeVar("T", bound=Protobuf)


class Transport(Protocol):
    """Sends a request to one of the methods of the Fleet API."""

    def call(
        self, method: str, request: bytes, signed: RequestSignature, most: int, seconds: float | None
    ) -> bytes:
        """The answer, of at most `most` bytes. Raises LinkError, after `seconds` at the latest if given."""
        ...

    def close(self) -> None:
        """End the connection."""
        ...


class FleetLink:
    """A connection to a SuperLink as a registered node; see `connection.Link`.

    Raises LinkError if the SuperLink does not accept the node. `seconds`: for each of its first answers.
    """

    def __init__(
        self,
        transport: Transport,
        keys: Keys,
        most_bytes: int = ANSWER_BYTES,
        seconds: float | None = None,
    ) -> None:
        self._transport, self._keys, self._most = transport, keys, most_bytes
        self._seconds = seconds
        self._refused: LinkError | None = None  # what a heartbeat was answered
        if keys.registers:
            self._join("RegisterNode", RegisterNodeFleetRequest(public_key=keys.public), RegisterNodeFleetResponse)
        self.node_id = self._activated()
        self._seconds = None
        self._ended = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="heartbeat", daemon=True)
        self._heart.start()

    def _activated(self) -> int:
        request = ActivateNodeRequest(public_key=self._keys.public, heartbeat_interval=HEARTBEAT_SECONDS)
        return int(self._join("ActivateNode", request, ActivateNodeResponse).node_id)

    def _join(self, method: str, request: Protobuf, kind: type[T]) -> T:
        """As `_call`. Raises KeyRefusedError, with what to do, if this node may not join."""
        try:
            return self._call(method, request, kind)
        except AnswerError as error:
            code = _CODE.search(str(error))
            if code is not None and int(code[1]) in REFUSALS:
                raise KeyRefusedError(REFUSALS[int(code[1])]) from None
            raise

    @property
    def _node(self) -> Node:
        return Node(node_id=self.node_id)

    def receive(self) -> Arrived | None:
        """See `Link`."""
        answer = self._call("PullMessages", PullMessagesRequest(node=self._node), PullMessagesResponse, self._most)
        if not answer.messages_list:
            return None
        if not answer.message_object_trees:
            raise AnswerError("the SuperLink sent a message without its tree of objects")
        head = head_of(answer.messages_list[0].metadata)
        objects = objects_in(answer.message_object_trees[0])
        if head.target != self.node_id or head.id not in objects:
            raise AnswerError(f"the SuperLink sent a message that is not for this node ({head.target})")
        return Arrived(head, objects)

    def run(self, run: int) -> AnnouncedRun:
        """See `Link`."""
        description = self._call("GetRun", GetRunRequest(node=self._node, run_id=run), GetRunResponse).run
        if description.run_id != run:
            raise AnswerError(f"the SuperLink describes run {description.run_id} instead of {run}")
        overrides = {key: plain_value(value) for key, value in description.override_config.items()}
        return AnnouncedRun(run, description.series_id, description.fab_hash, overrides)

    def bundle(self, app_hash: str, run: int) -> Bundle:
        """See `Link`. Raises AnswerError if the content has another SHA-256."""
        request = GetFabRequest(node=self._node, hash_str=app_hash, run_id=run)
        fab = self._call("GetFab", request, GetFabResponse, self._most).fab
        if hashlib.sha256(fab.content).hexdigest() != app_hash:
            raise AnswerError("the SuperLink sent an app with another SHA-256 than that of the run")
        return Bundle(fab.content, dict(fab.verifications))

    def content(self, run: int, object_id: str) -> bytes:
        """See `Link`. Raises AnswerError if the content has another SHA-256 than the id says."""
        request = PullObjectRequest(node=self._node, run_id=run, object_id=object_id)
        answer = self._call("PullObject", request, PullObjectResponse, self._most)
        if not answer.object_found:
            raise RunGoneError("the SuperLink does not have a part of the message any more")
        if not answer.object_available:
            raise NotThereYetError("a part of the message has not arrived at the SuperLink")
        if hashlib.sha256(answer.object_content).hexdigest() != object_id:
            raise AnswerError("the SuperLink sent a part of a message with another SHA-256 than its id")
        return bytes(answer.object_content)

    def confirm(self, run: int, message: str) -> None:
        """See `Link`."""
        request = ConfirmMessageReceivedRequest(node=self._node, run_id=run, message_object_id=message)
        self._call("ConfirmMessageReceived", request, ConfirmMessageReceivedResponse)

    def send(self, reply: bytes, tree: Mapping[str, tuple[str, ...]], seconds: float) -> Missing:
        """See `Link`."""
        message_id = hashlib.sha256(reply).hexdigest()
        message = MessageProto.FromString(reply.partition(b"\0")[2])
        message.metadata.message_id = message_id
        if not message.HasField("error"):
            message.content.SetInParent()  # announced as empty; its objects follow
        request = PushMessagesRequest(
            node=self._node,
            messages_list=[message],
            message_object_trees=[object_tree(message_id, tree)],
            clientapp_runtime_list=[seconds],
        )
        answer = self._call("PushMessages", request, PushMessagesResponse, self._most)
        return Missing(frozenset(answer.objects_to_push), answer.session_id)

    def put(self, run: int, session: str, object_id: str, content: bytes) -> None:
        """See `Link`. Raises AnswerError if the SuperLink does not store it."""
        request = PushObjectRequest(
            node=self._node, run_id=run, object_id=object_id, object_content=content, session_id=session
        )
        if not self._call("PushObject", request, PushObjectResponse).stored:
            raise AnswerError("the SuperLink did not store a part of the reply")

    def close(self) -> None:
        """See `Link`."""
        self._ended.set()
        self._seconds = GOODBYE_SECONDS
        with contextlib.suppress(LinkError):
            self._call("DeactivateNode", DeactivateNodeRequest(node_id=self.node_id), DeactivateNodeResponse)
            if self._keys.registers:
                request = UnregisterNodeFleetRequest(node_id=self.node_id)
                self._call("UnregisterNode", request, UnregisterNodeFleetResponse)
        self._transport.close()

    def _beat(self) -> None:
        """Say again and again that this node is there. If the SuperLink has forgotten it, activate it again."""
        pause = HEARTBEAT_EVERY
        while not self._ended.wait(pause):
            pause = HEARTBEAT_EVERY
            request = SendNodeHeartbeatRequest(node=self._node, heartbeat_interval=HEARTBEAT_SECONDS)
            try:
                if not self._call("SendNodeHeartbeat", request, SendNodeHeartbeatResponse).success:
                    self._activated()
            except KeyRefusedError as error:
                self._refused = error
                return
            except LinkError:
                pause = HEARTBEAT_AGAIN

    def _call(self, method: str, request: Protobuf, kind: type[T], most: int = MOST_SMALL) -> T:
        if self._refused is not None:
            raise self._refused
        most = min(most, self._most)
        answer = self._transport.call(
            method, request.SerializeToString(), self._keys.signed(), most, self._seconds
        )
        try:
            message: T = kind.FromString(answer)
            return message
        except DecodeError:
            raise AnswerError(f"the SuperLink's answer to {method} is not of the form that Flower has") from None
