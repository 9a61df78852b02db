"""The guard: what arrives at the SuperLink's port is handed to Flower only when it is whole and may be asked.

Flower reads a body of any size before it looks at who sends it, and has no credential for those who submit runs.
Here the head decides first, then the credential; then the body is read within bounds, and Flower gets it whole.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import time
from collections.abc import Awaitable, Callable, MutableMapping
from datetime import UTC, datetime
from importlib.metadata import version
from logging import WARNING
from typing import Any, Protocol

from fedstride.flower.for_nodes import request_keys
from fedstride.flower.for_superlinks import pushes
from fedstride.flower.for_superlinks.asgi import UNKNOWN_TASK
from fedstride.flower.logs import log

from .allowed_routes import (
    FLEET,
    KIB,
    MIB,
    Refusal,
    RequestHead,
    Route,
    RouteKind,
    Rules,
    decide,
    declared,
    too_large,
)
from .memory_budget import FullError, Shares
from .token import is_loopback

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_SECONDS, LEAST_RATE = 30.0, 16 * KIB
"""A body may take so many seconds, and more if so many bytes a second arrive."""

LARGE = 64 * KIB
"""Bodies above this share the budget of large ones, so that a heartbeat never waits for them."""

REFUSED = "Invalid SuperNode authentication"
PUSH = FLEET["push-messages"]


class Flower(Protocol):
    """What is behind the guard."""

    app: App

    def node_of(self, public_key: bytes) -> int | None:
        """The id of the node with this key; None if none is registered."""

    def has_task(self, token: str) -> bool:
        """Whether this is the token of a task that has not ended."""


class Guard:
    """An ASGI application before another one.

    `files`: serves the folders of runs. `vouched`: is told the peer of a connection that has shown a credential.
    `submitted`: is called after each request of someone who submits.
    """

    def __init__(
        self,
        flower: Flower,
        rules: Rules,
        files: App,
        vouched: Callable[[tuple[str, int]], None] = lambda peer: None,
        submitted: Callable[[], None] = lambda: None,
    ) -> None:
        self._flower, self._rules, self._files = flower, rules, files
        self._vouched, self._submitted = vouched, submitted
        self._small = Shares(16 * MIB, 4 * MIB, waiting=4096, waiting_part=1024)
        self._nodes = Shares(64 * MIB, 18 * MIB, waiting=1024, waiting_part=64)
        self._own = Shares(64 * MIB, 64 * MIB, waiting=256, waiting_part=256)  # those of ServerApps and submitters
        self._health = [(b"x-flower-version", version("flwr").encode()), (b"content-type", b"application/json")]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await self._flower.app(scope, receive, send)
        elif scope["type"] == "http":
            await self._request(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})

    async def _request(self, scope: Scope, receive: Receive, send: Send) -> None:
        peer = tuple((scope.get("client") or ("", 0))[:2])
        path = scope.get("raw_path") or scope["path"].encode()
        head = RequestHead(
            scope["method"], path.decode("ascii", "replace"), scope["headers"], is_loopback(peer[0])
        )
        route = decide(head, self._rules)
        if isinstance(route, Refusal):
            await refuse(send, route, head.method)
            return
        if route.kind is RouteKind.HEALTH:
            await _answer(send, 200, self._health, b'{"status":"ok"}', head.method)
            return
        sender = await self._sender(route, head, peer[0])
        if isinstance(sender, Refusal):
            await refuse(send, sender, head.method)
            return
        self._vouched(peer)
        if route.kind is RouteKind.FILES:
            await self._files(scope, receive, send)
            return
        await self._hand_on(route, head, sender, (scope, receive, send))
        if route.kind is RouteKind.CONTROL:
            self._submitted()

    async def _hand_on(
        self, route: Route, head: RequestHead, sender: bytes, asgi: tuple[Scope, Receive, Send]
    ) -> None:
        """Read the body within the budget, and have Flower answer it."""
        scope, receive, send = asgi
        amount = declared(head) if not head.values(b"transfer-encoding") else route.most
        large = self._nodes if route.kind in (RouteKind.NODE, RouteKind.JOIN) else self._own
        shares = large if amount > LARGE else self._small
        try:
            async with shares.hold(sender, amount):
                body = await _body(receive, route)
                if isinstance(body, bytes) and route is PUSH and (fault := pushes.fault_in(body)):
                    log(WARNING, "refused: %s", fault)
                    body = Refusal(400, fault)
                if isinstance(body, Refusal):
                    await refuse(send, body, head.method)
                elif body is not None:
                    await self._flower.app(scope, _replayed(body, receive), send)
        except FullError:
            await refuse(send, Refusal(503, "too many requests wait; ask again"), head.method)

    async def _sender(self, route: Route, head: RequestHead, host: str) -> bytes | Refusal:
        """Who sends, so that its share can be counted; or why it may not."""
        if route.kind in (RouteKind.CONTROL, RouteKind.FILES):
            return b""
        if route.kind is RouteKind.TASK:
            task = _only(head, b"flwr-task-token")
            is_known: bool = await asyncio.to_thread(self._flower.has_task, task)
            if task and is_known:
                return task.encode()
            return Refusal(401, UNKNOWN_TASK.decode())
        key, fault = _signer(head)
        if fault:
            return Refusal(401, fault)
        if route.kind is RouteKind.JOIN:
            return host.encode()  # anyone can make a key
        known = await asyncio.to_thread(self._flower.node_of, key)
        return Refusal(401, REFUSED) if known is None else key


def _signer(head: RequestHead) -> tuple[bytes, str]:
    """The key of a node that has signed the time in the head; or what is wrong."""
    try:
        key = base64.b64decode(_only(head, b"flwr-public-key"), validate=True)
        signature = base64.b64decode(_only(head, b"flwr-signature"), validate=True)
    except (binascii.Error, ValueError):
        return b"", REFUSED
    fault = request_keys.fault(key, _only(head, b"flwr-timestamp"), signature, datetime.now(UTC))
    return key, f"{REFUSED}: {fault}" if fault else ""


def _only(head: RequestHead, name: bytes) -> str:
    """The value of a header that is there once; else empty."""
    values = head.values(name)
    return values[0].decode("latin-1") if len(values) == 1 else ""


async def _body(receive: Receive, route: Route) -> bytes | Refusal | None:
    """The whole body; a refusal if it is too large or too slow; None if the connection ended."""
    pieces: list[bytes] = []
    size, since = 0, time.monotonic()
    try:
        while True:
            left = since + BODY_SECONDS + size / LEAST_RATE - time.monotonic()
            event = await asyncio.wait_for(receive(), max(left, 0.0))
            if event["type"] != "http.request":
                return None
            pieces.append(event.get("body", b""))
            size += len(pieces[-1])
            if size > route.most:
                return too_large(route)
            if not event.get("more_body", False):
                return b"".join(pieces)
    except TimeoutError:
        return Refusal(408, f"the request did not arrive in {BODY_SECONDS:g} s, at {LEAST_RATE} bytes a second")


def _replayed(body: bytes, receive: Receive) -> Receive:
    """A function by which an application receives this body, and then what comes after it."""
    first = [body]

    async def replayed() -> MutableMapping[str, Any]:
        if first:
            return {"type": "http.request", "body": first.pop(), "more_body": False}
        return await receive()

    return replayed


async def refuse(send: Send, refusal: Refusal, method: str = "POST") -> None:
    """Answer with a refusal, and end the connection: the rest of the request is not read."""
    text = refusal.text if refusal.text.startswith("{") else json.dumps({"detail": refusal.text})
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await _answer(send, refusal.status, headers, text.encode(), method)


async def _answer(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes, method: str) -> None:
    sized = [*headers, (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": sized})
    await send({"type": "http.response.body", "body": b"" if method == "HEAD" else body})
