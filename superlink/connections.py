"""Bounds the connections to a port, and the time that a connection may take to say what it wants.

uvicorn bounds neither: a connection that sends half of a head keeps its descriptor for ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import socket
import struct
import time
from dataclasses import dataclass, field
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

Peer = tuple[str, int]

HEAD_SECONDS = 10.0
"""For the handshake of TLS, and for a whole head from its first byte on."""

MOST_HEAD = 32 * 2**10
"""Bytes of a head."""

STUCK_SECONDS = 60.0
"""After so long without reading a byte of its answer, a connection is ended."""

MOST_OF_PEER, MOST_UNVOUCHED = 64, 16
"""Connections from one address, and those of them that have shown no credential yet."""

RECENT_SECONDS = 1.0
"""A connection may be silent so long: several nodes behind one address may connect at the same moment."""

SPARE = 256
"""Descriptors for everything but connections: the database, logs, gRPC, ServerApps."""

COLLECTED_EVERY = 64
"""asyncio leaves a cycle of objects with 256 KiB for each ended connection with TLS. Python itself would collect
thousands of them at a time."""

_RESET = struct.pack("ii", 1, 0)


@dataclass
class Connection:
    """A connection."""

    socket: socket.socket
    since: float = field(default_factory=time.monotonic)
    protocol: Protocol | None = None  # from the end of the handshake on
    vouched: bool = False
    unsent: int = 0  # bytes of an answer that were not read at the last look
    stuck: float = 0.0  # since when they are as many

    def end(self) -> None:
        """End it at once, and tell the peer so: it would else wait for its request to be read."""
        with contextlib.suppress(OSError):
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            if self.protocol is None:
                self.socket.shutdown(socket.SHUT_RDWR)
        if self.protocol is not None:
            self.protocol.transport.abort()

    def waits(self) -> bool:
        """Whether nothing is lost if it ends: no request of it is being answered."""
        return self.protocol is None or not self.protocol.is_answering()


class Connections:
    """All connections to a port. `one_peer`: all come from a proxy, so their addresses say nothing."""

    def __init__(self, one_peer: bool = False, most: int | None = None) -> None:
        self._one_peer = one_peer
        self._most = most or most_descriptors() - SPARE
        self._lines: dict[Peer, Connection] = {}
        self._ended = 0

    def admit(self, line: socket.socket, peer: Peer) -> bool:
        """Whether this connection may stay. One that has shown nothing is ended if there are too many such."""
        lines, recent = self._lines.values(), time.monotonic() - RECENT_SECONDS
        same = (
            [] if self._one_peer else [connection for key, connection in self._lines.items() if key[0] == peer[0]]
        )
        unvouched = [connection for connection in same if not connection.vouched]
        admitted = True
        if len(same) >= MOST_OF_PEER:
            admitted = _end_oldest(unvouched)
        elif len(unvouched) >= MOST_UNVOUCHED:
            _end_oldest([connection for connection in unvouched if connection.since < recent])
        if len(lines) >= self._most:
            admitted = admitted and _end_oldest([connection for connection in lines if not connection.vouched])
        if admitted:
            self._lines[peer] = Connection(line)
        return admitted

    def vouch(self, peer: Peer) -> None:
        """This connection has shown a credential."""
        if peer in self._lines:
            self._lines[peer].vouched = True

    def made(self, peer: Peer, protocol: Protocol) -> None:
        """The handshake of this connection is over."""
        if peer in self._lines:
            self._lines[peer].protocol = protocol

    def gone(self, peer: Peer, line: socket.socket) -> None:
        """This connection has ended."""
        if peer in self._lines and self._lines[peer].socket is line:
            del self._lines[peer]
        self._ended += 1
        if self._ended % COLLECTED_EVERY == 0:
            gc.collect()

    def sweep(self, now: float) -> None:
        """End connections whose handshake takes too long, and those that do not read their answers."""
        for line in list(self._lines.values()):
            if line.protocol is None:
                if now - line.since > HEAD_SECONDS:
                    line.end()
                continue
            unsent = line.protocol.transport.get_write_buffer_size()
            if not unsent or unsent != line.unsent:
                line.unsent, line.stuck = unsent, now
            elif now - line.stuck > STUCK_SECONDS:
                line.protocol.transport.abort()

    async def watch(self) -> None:
        """Sweep once a second, for ever."""
        while True:
            await asyncio.sleep(1.0)
            self.sweep(time.monotonic())


class Listener(socket.socket):
    """A listening socket that only accepts connections which `lines` admits."""

    lines: Connections

    def accept(self) -> tuple[socket.socket, Any]:
        """The next admitted connection. Raises BlockingIOError if none waits."""
        while True:
            plain, address = super().accept()
            line = _Counted(fileno=plain.detach())
            line.lines, line.peer = self.lines, (str(address[0]), int(address[1]))
            if self.lines.admit(line, line.peer):
                return line, address
            line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            line.close()


class _Counted(socket.socket):
    """A connection that says when it is closed."""

    lines: Connections
    peer: Peer

    def close(self) -> None:
        super().close()
        self.lines.gone(self.peer, self)


def listen(host: str, port: int, lines: Connections) -> Listener:
    """A socket that listens there. Raises OSError."""
    family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = Listener(family, socket.SOCK_STREAM)
    listener.lines = lines
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    try:
        listener.bind(address)
        listener.listen(1024)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


class Protocol(H11Protocol):
    """HTTP/1.1 on one connection, which is ended if a head takes longer than it may."""

    def __init__(self, *given: Any, lines: Connections, **named: Any) -> None:
        super().__init__(*given, **named)
        self.lines = lines
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio."""
        super().connection_made(transport)
        if self.client is not None:
            self.lines.made(self.client, self)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        super().connection_lost(exc)
        self._stop_timer()

    def is_answering(self) -> bool:
        """Whether a request has arrived whose answer is not complete."""
        return self.cycle is not None and not self.cycle.response_complete

    def _watch_head(self) -> None:
        if self.is_answering():
            self._stop_timer()
        elif self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def on_response_complete(self) -> None:
        """See uvicorn, which then waits for the next head."""
        self._stop_timer()
        super().on_response_complete()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if not self.is_answering() and not self.transport.is_closing():
            self.transport.abort()


def most_descriptors() -> int:
    """The number of descriptors that this process may have, raised to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 65_536 if hard == resource.RLIM_INFINITY else hard
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return max(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 2 * SPARE)


def _end_oldest(lines: list[Connection]) -> bool:
    """End the oldest of these that waits; whether there is one."""
    waiting = [line for line in lines if line.waits()]
    if waiting:
        min(waiting, key=lambda line: line.since).end()
    return bool(waiting)
