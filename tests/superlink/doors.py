"""A guard before an application that says what it got, asked directly or over a port of the loopback."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.proto.fleet_pb2 import PushMessagesRequest
from flwr.proto.message_pb2 import Message, Metadata, ObjectTree
from flwr.proto.node_pb2 import Node

from fedstride.flower.for_nodes.request_keys import Keys, RequestSignature
from superlink.allowed_routes import Rules
from superlink.connections import MOST_HEAD, Connections, Protocol, listen
from superlink.guard import Guard
from superlink.run_folder_stream import Files

TOKEN = "the-submit-token"
WITH_TOKEN = [(b"fedstride-token", TOKEN.encode())]
TASK = [(b"flwr-task-token", b"of-a-task")]
NODE = 7
KNOWN = Keys(ec.generate_private_key(ec.SECP384R1()))
UNKNOWN = Keys(ec.generate_private_key(ec.SECP384R1()))


def of_node(signed: RequestSignature) -> list[tuple[bytes, bytes]]:
    """The headers by which a node identifies itself."""
    return [
        (b"flwr-public-key", base64.b64encode(signed.public_key)),
        (b"flwr-timestamp", signed.time.encode()),
        (b"flwr-signature", base64.b64encode(signed.signature)),
    ]


def pushed(**changes: Any) -> bytes:
    """A request of the known node to push its reply."""
    given: dict[str, Any] = {"src_node_id": NODE, "dst_node_id": 1, "reply_to_message_id": "a", "run_id": 3}
    message = Message(metadata=Metadata(**given | changes))
    return PushMessagesRequest(
        node=Node(node_id=NODE), messages_list=[message], message_object_trees=[ObjectTree(object_id="b")]
    ).SerializeToString()


class Flower:
    """Stands where Flower is: knows one node and one task, and keeps what reached it."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes]] = []
        self.holds = False  # while it is true, nothing is answered

    def node_of(self, public_key: bytes) -> int | None:
        return NODE if public_key == KNOWN.public else None

    def has_task(self, token: str) -> bool:
        return token == "of-a-task"

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (event := (await receive())["type"].removeprefix("lifespan.")) != "":
                await send({"type": f"lifespan.{event}.complete"})
                if event == "shutdown":
                    return
        event = await receive()
        assert not event["more_body"]
        self.got.append((scope["path"], event["body"]))
        while self.holds:
            await asyncio.sleep(0)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"of Flower"})


class Door:
    """A guard with its rules, before `flower`."""

    def __init__(self, runs: Path = Path("/nowhere"), **rules: Any) -> None:
        self.flower = Flower()
        self.lines = Connections(one_peer=bool(rules.get("behind_proxy")))
        self.guard = Guard(self.flower, Rules(TOKEN, **rules), Files(runs), self.lines.vouch)

    def ask(
        self,
        path: str,
        headers: list[tuple[bytes, bytes]] | None = None,
        *pieces: bytes,
        method: str = "POST",
        peer: str = "192.0.2.9",
    ) -> tuple[int, bytes]:
        """The status and the body of the answer to one request, whose body comes in these pieces."""
        return asyncio.run(self.asked(path, headers or [], *pieces, method=method, peer=peer))

    async def asked(
        self,
        path: str,
        headers: list[tuple[bytes, bytes]],
        *pieces: bytes,
        method: str = "POST",
        peer: str = "192.0.2.9",
    ) -> tuple[int, bytes]:
        """See `ask`."""
        plain, _, query = path.partition("?")
        scope = {
            "type": "http", "method": method, "path": plain, "raw_path": plain.encode(), "headers": headers,
            "query_string": query.encode(), "client": (peer, 4711),
        }  # fmt: skip
        rest = [{"type": "http.request", "body": piece, "more_body": True} for piece in pieces]
        rest.append({"type": "http.request", "body": b"", "more_body": False})
        sent: list[Any] = []

        async def receive() -> Any:
            return rest.pop(0)

        async def send(event: Any) -> None:
            sent.append(event)

        await self.guard(scope, receive, send)
        return sent[0]["status"], b"".join(event.get("body", b"") for event in sent[1:])

    @contextlib.contextmanager
    def serving(self) -> Iterator[int]:
        """Serve on a port of the loopback."""
        listener = listen("127.0.0.1", 0, self.lines)
        protocol: Any = functools.partial(Protocol, lines=self.lines)
        config = uvicorn.Config(
            self.guard, http=protocol, loop="asyncio", ws="none", proxy_headers=False, log_level="error",
            h11_max_incomplete_event_size=MOST_HEAD, timeout_keep_alive=5,
        )  # fmt: skip
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        port = int(listener.getsockname()[1])
        thread.start()
        while not server.started:
            time.sleep(0.01)
        try:
            yield port
        finally:
            server.should_exit = True
            thread.join(10)


def talk(port: int, *pieces: bytes, seconds: float = 10.0) -> bytes:
    """Send these bytes, and return all that comes until the connection ends."""
    with socket.create_connection(("127.0.0.1", port), seconds) as line:
        for piece in pieces:
            line.sendall(piece)
        return heard(line)


def heard(line: socket.socket) -> bytes:
    """All that comes until the connection ends."""
    found = b""
    with contextlib.suppress(ConnectionError):
        while piece := line.recv(65536):
            found += piece
    return found


def head(path: str, headers: list[tuple[bytes, bytes]], method: str = "POST") -> bytes:
    """The head of a request, after whose answer the connection ends."""
    lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: x", b"Connection: close"]
    return b"\r\n".join([*lines, *(name + b": " + value for name, value in headers), b"", b""])
