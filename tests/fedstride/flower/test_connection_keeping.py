"""Connections of a ServerApp to its SuperLink: real sockets and TLS on loopback."""

from __future__ import annotations

import contextlib
import http.server
import inspect
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvicorn
from flwr.proto.runtime_pb2 import GetNodesResponse
from flwr.superlink.grid.http_grid import HttpGrid

from fedstride.flower import connection_keeping
from lab.deployment.certificates import make


class SuperLinkLike(http.server.BaseHTTPRequestHandler):
    """Answers each question for the nodes with none. Counts the connections, and the answers on each."""

    protocol_version = "HTTP/1.1"
    answers: list[int]  # for each connection

    def setup(self) -> None:
        super().setup()
        self.answers.append(0)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.answers[-1] += 1  # first: an empty answer ends with its headers, and the client goes on
        body = GetNodesResponse().SerializeToString()
        self.send_response(200)
        self.send_header("content-type", "application/protobuf")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, *_: object) -> None:
        """Print nothing."""


@contextlib.contextmanager
def serving(certificate: Path | None) -> Iterator[tuple[str, list[int]]]:
    """The address of a server, and the answers that it gave on each of its connections."""
    handler = type("Counting", (SuperLinkLike,), {"answers": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate / "server.crt", certificate / "server.key")
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}", handler.answers
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tls", "idle_seconds", "connections"),
    [  # with TLS, a session ticket that arrives late ends a connection, so how many there are is not certain
        (False, 60.0, [3]),
        (False, 0.0, [1, 1, 1]),
        (True, 0.0, [1, 1, 1]),
    ],
)
def test_an_idle_connection_is_used_for_so_long_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: bool, idle_seconds: float, connections: list[int]
) -> None:
    monkeypatch.setattr(connection_keeping, "IDLE_SECONDS", idle_seconds)
    if tls:
        make(tmp_path, addresses=["127.0.0.1"])
    with serving(tmp_path if tls else None) as (address, answers):
        grid = HttpGrid(address, not tls, (tmp_path / "ca.crt").read_bytes() if tls else None, token="x")
        connection_keeping.forget_idle_connections(grid)
        for _ in range(3):
            assert list(grid.get_node_ids()) == []
        grid.close()
        assert answers == connections


def test_it_is_below_what_a_superlink_keeps() -> None:
    kept = inspect.signature(uvicorn.Config).parameters["timeout_keep_alive"].default
    assert kept > 2 * connection_keeping.IDLE_SECONDS
