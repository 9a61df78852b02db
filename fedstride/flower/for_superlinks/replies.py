"""Replies at a SuperLink (1.39 to 1.42).

`HttpGrid.pull_messages` fetches whatever a node announces, of any size and for up to two hours, and parses all
replies of a batch together: one bad reply ends the call, and the others are lost. So replies are fetched here one
by one, object by object, with a limit for each answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from flwr.serverapp import Grid

from ..grids import TOKEN_REFUSED, is_deployment

MESSAGE_BYTES = 2**20
"""Maximum size of a reply's metadata (or error) as the SuperLink lists it."""

READ_SECONDS = 30.0
"""Longest wait for the next bytes of an answer; Flower's own clients wait as long."""


CONFIRM_TRIES = 3
"""How often a confirmation is sent if its connection breaks each time."""


class ReplyTooLargeError(Exception):
    """An answer of the SuperLink is larger than allowed. What is left of it is not read."""


class UndeliverableError(Exception):
    """The SuperLink refuses to deliver this reply or object; the text says why."""


@dataclass(frozen=True)
class AnnouncedReply:
    """A reply that has arrived at the SuperLink: what the node says that it consists of."""

    message_id: str
    reply_to: str  # the id of the message that it replies to
    objects: tuple[str, ...]  # ids of its objects, each once


class SuperLinkRequests:
    """The requests of an `HttpGrid` to its SuperLink. Answers are read as far as allowed, and no further."""

    def __init__(self, grid: Any) -> None:
        self._client = grid._runtime_client
        self._node = grid.node
        self._run_id = grid.run.run_id

    def announced(self, message_id: str, most_objects: int) -> AnnouncedReply | None:
        """The reply to this message, if it has arrived. The SuperLink gives each reply out only once.

        Requests are repeated while the SuperLink does not answer, as in Flower. Raises ReplyTooLargeError if the
        reply consists of more than `most_objects` objects.
        """
        import httpx
        from flwr.proto.message_pb2 import Message as MessageProto
        from flwr.proto.message_pb2 import ObjectTree
        from flwr.proto.runtime_pb2 import PullAppMessagesRequest
        from google.protobuf.message import DecodeError

        request = PullAppMessagesRequest(message_ids=[message_id])
        try:
            answer = self._client._retry_invoker.invoke(
                lambda: self._opened("PullMessages", "pull-messages", request)
            )
        except httpx.HTTPStatusError as error:
            if error.response.status_code == 413:
                raise ReplyTooLargeError("more than the SuperLink gives out at once") from None
            if error.response.is_server_error:  # such as a database that is locked for a moment
                return None
            raise
        # The first message and the first tree belong together. Any others are messages that nobody asked for,
        # which a node can send to the server as well.
        most = {1: MESSAGE_BYTES, 2: most_objects * _TREE_NODE_BYTES}
        first: dict[int, bytearray | int] = {}
        with closing(answer), suppress(httpx.TransportError, ConnectionError):
            for number, value in _fields(answer, most):
                first.setdefault(number, value)
                if not isinstance(first[number], bytearray):
                    break
        message, tree = first.get(1), first.get(2)
        if not isinstance(message, bytearray):
            return None
        metadata = MessageProto.FromString(bytes(message)).metadata
        if metadata.reply_to_message_id != message_id:
            return None
        if not isinstance(tree, bytearray):
            raise ReplyTooLargeError(f"more than {most_objects} objects")
        try:
            objects = _objects(ObjectTree.FromString(bytes(tree)), most_objects)
        except DecodeError as error:
            raise ReplyTooLargeError("objects nested too deeply") from error
        return AnnouncedReply(metadata.message_id, message_id, objects)

    def content(self, object_id: str, most_bytes: int) -> bytes | None:
        """The content of an object; None if it has not arrived at the SuperLink yet.

        Raises UndeliverableError if it will not arrive, ReplyTooLargeError if it has more than `most_bytes` bytes,
        ConnectionError if the SuperLink cannot answer now, and PermissionError if it no longer answers this run.
        """
        import httpx
        from flwr.proto.message_pb2 import PullObjectRequest

        request = PullObjectRequest(node=self._node, run_id=self._run_id, object_id=object_id)
        try:
            with closing(self._opened("PullObject", "pull-object", request)) as answer:
                fields: dict[int, bytearray | int] = {}
                for number, value in _fields(answer, {3: most_bytes}):
                    fields[number] = value
                    if number == 3 and not isinstance(value, bytearray):
                        break
        except httpx.TransportError as error:
            raise ConnectionError(str(error)) from error
        except httpx.HTTPStatusError as error:
            if error.response.is_server_error:
                raise ConnectionError(str(error)) from error
            if error.response.status_code in TOKEN_REFUSED:  # the run has ended; `announced` handles that
                raise PermissionError(str(error)) from error
            raise UndeliverableError(f"the SuperLink answered with HTTP {error.response.status_code}") from None
        if not fields.get(1):
            raise UndeliverableError("the node did not send all of its objects")
        if not fields.get(2):
            return None
        content = fields.get(3, bytearray())
        if not isinstance(content, bytearray):
            raise ReplyTooLargeError(f"more than {most_bytes} bytes")
        return bytes(content)

    def confirm(self, message_id: str) -> None:
        """Let the SuperLink delete the reply's objects; without this it deletes them at the end of the run.

        If the connection breaks, it is asked again, up to `CONFIRM_TRIES` times in all.
        """
        import httpx
        from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest

        request = ConfirmMessageReceivedRequest(node=self._node, run_id=self._run_id, message_object_id=message_id)
        for _ in range(CONFIRM_TRIES):
            try:
                self._opened("ConfirmMessageReceived", "confirm-message-received", request).close()
            except httpx.TransportError:
                continue
            except httpx.HTTPError:
                return  # the reply is here, and the SuperLink deletes its objects later
            return

    def _opened(self, method: str, path: str, request: Any) -> Any:
        """The open answer to a request, of which no byte of the body is read."""
        from flwr.supercore.protobuf.client import ProtobufRequestContext
        from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE

        client = self._client
        kind = {"content-type": PROTOBUF_MEDIA_TYPE, "accept": PROTOBUF_MEDIA_TYPE, "accept-encoding": "identity"}
        sent = client._client.build_request(
            method="POST",
            url=f"{client._base_url}/v1/runtime/{path}",
            content=request.SerializeToString(deterministic=True),
            headers=kind,
        )
        context = ProtobufRequestContext(f"/flwr.proto.Runtime/{method}", request, sent)
        answer = client._send(context, stream=True)
        sent.extensions["timeout"]["read"] = READ_SECONDS  # Flower removes this limit from a streamed answer
        answer.raise_for_status()
        return answer


def behind(grid: object) -> SuperLinkRequests | None:
    """The SuperLink behind this Grid, if it is the Grid of a deployment."""
    return SuperLinkRequests(grid) if is_deployment(grid) else None


def notice_stop(grid: Grid) -> None:
    """End the run here if it was stopped at its SuperLink; elsewhere do nothing. For use after a failed request.

    The SuperLink deletes a stopped run's messages at once. A request that it has begun to handle before then fails
    because of that, and looks like a lost message or a client that failed. The next request is refused, and Flower
    then sends SIGINT to this process (1.39 to 1.42).
    """
    if behind(grid) is not None:
        list(grid.get_node_ids())


_TREE_NODE_BYTES = 80
"""An object's id (64 characters) with its tags in an ObjectTree, rounded up."""


def _objects(tree: Any, most: int) -> tuple[str, ...]:
    """The ids in a tree, each once."""
    ids: dict[str, None] = {}
    left = [tree]
    while left:
        node = left.pop()
        ids[node.object_id] = None
        left += node.children
        if len(ids) > most:
            raise ReplyTooLargeError(f"more than {most} objects")
    return tuple(ids)


def _fields(answer: Any, most: dict[int, int]) -> Iterator[tuple[int, bytearray | int]]:
    """The fields of a protobuf message by number, while its bytes arrive.

    A field of bytes that is longer than `most` says is skipped, and its length is given instead.
    """
    stream = _Stream(answer.iter_raw())
    while (tag := stream.varint()) is not None:
        number, kind = tag >> 3, tag & 7
        size = stream.varint()
        if size is None or kind not in (0, 2):
            raise ValueError("an answer of the SuperLink that is no protobuf message of known fields")
        if kind == 0:
            yield number, size
        elif size <= most.get(number, 0):
            yield number, stream.take(size)
        else:
            yield number, size
            stream.skip(size)


class _Stream:
    """Bytes that arrive in pieces."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")

    def _some(self, most: int) -> memoryview:
        """The next bytes, at most this many; empty at the end."""
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return self._rest
            self._rest = memoryview(piece)
        some, self._rest = self._rest[:most], self._rest[most:]
        return some

    def take(self, size: int) -> bytearray:
        taken = bytearray()
        while len(taken) < size:
            some = self._some(size - len(taken))
            if not some:
                raise ConnectionError("an answer of the SuperLink that ends early")
            taken += some
        return taken

    def skip(self, size: int) -> None:
        while size > 0 and (some := self._some(size)):
            size -= len(some)

    def varint(self) -> int | None:
        """The next number; None at the end of the stream."""
        value = shift = 0
        while some := self._some(1):
            value |= (some[0] & 127) << shift
            shift += 7
            if some[0] < 128:
                return value
        return None
