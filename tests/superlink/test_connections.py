"""A real server on the loopback: half-sent requests, heads, connections, pipelines."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from doors import KNOWN, WITH_TOKEN, Door, head, heard, of_node, talk

from fedstride.flower.for_nodes.connection import SuperLinkAddress
from fedstride.flower.for_nodes.over_http import HttpTransport
from fedstride.flower.for_nodes.request_keys import Keys
from superlink import connections
from superlink.allowed_routes import CHUNK


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> Door:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.5)
    return Door()


@pytest.fixture
def port(door: Door) -> Iterator[int]:
    with door.serving() as found:
        yield found


def health(port: int) -> bytes:
    return talk(port, head("/health", [], "GET"))


def opened(port: int, count: int) -> list[socket.socket]:
    return [socket.create_connection(("127.0.0.1", port), 5) for _ in range(count)]


@pytest.mark.slow
def test_18_half_of_a_head_ends_with_its_time(port: int) -> None:
    """Also a second head on one connection, and one that comes a byte at a time."""
    with socket.create_connection(("127.0.0.1", port), 5) as line:
        line.sendall(b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: x\r\n")
        began = time.monotonic()
        assert heard(line) == b""
        assert 0.3 < time.monotonic() - began < 3
    with socket.create_connection(("127.0.0.1", port), 5) as line:
        line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in line.recv(4096)
        began = time.monotonic()
        with contextlib.suppress(OSError):
            for _ in range(100):
                line.sendall(b"x")
                time.sleep(0.05)
        assert time.monotonic() - began < 3


def test_18_a_head_has_a_bound(port: int) -> None:
    many = b"".join(b"x-%d: %s\r\n" % (i, b"y" * 8000) for i in range(64))
    answer = talk(port, b"POST /v1/fleet/pull-messages HTTP/1.1\r\nHost: x\r\n", many)
    assert not answer or answer.startswith(b"HTTP/1.1 400")
    assert health(port).endswith(b'{"status":"ok"}')


@pytest.mark.slow
def test_18_connections_that_say_nothing_make_room(port: int) -> None:
    """The oldest one that has shown nothing is ended, so that health is answered at once; 64 at most are kept."""
    held = opened(port, 100)
    began = time.monotonic()
    assert health(port).endswith(b'{"status":"ok"}')
    assert time.monotonic() - began < 0.4
    for line in held:
        line.close()


@pytest.mark.slow
def test_18_connections_with_a_credential_are_kept(door: Door, port: int) -> None:
    """Also while others from the same address come and go; of one address there are 64 at most."""
    kept: list[socket.socket] = []
    for _ in range(60):
        kept += opened(port, 1)
        kept[-1].sendall(head("/v1/control/list-runs", WITH_TOKEN).replace(b"Connection: close\r\n", b""))
        while not kept[-1].recv(4096).endswith(b"0\r\n\r\n"):
            pass
    others = opened(port, 30)
    time.sleep(0.2)
    for line in kept:
        line.setblocking(False)
        with pytest.raises(BlockingIOError):
            line.recv(1)
    for line in (*kept, *others):
        line.close()


def test_18_a_handshake_that_does_not_begin_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is seen before the end of a handshake of TLS: a connection without a protocol."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.1)
    found = connections.Connections()
    here, there = socket.socketpair()
    assert found.admit(there, ("192.0.2.1", 1))
    found.sweep(time.monotonic() + 0.05)
    here.setblocking(False)
    with pytest.raises(BlockingIOError):
        here.recv(1)
    found.sweep(time.monotonic() + 0.2)
    assert here.recv(1) == b""
    there.close()
    here.close()


def test_all_descriptors_are_never_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Different addresses: with as many as there are descriptors, the oldest without a credential is ended."""
    found = connections.Connections(most=5)
    pairs = [socket.socketpair() for _ in range(8)]
    for number, (_, there) in enumerate(pairs[:5]):
        assert found.admit(there, (f"192.0.2.{number}", 1))
        found.vouch((f"192.0.2.{number}", 1))
    assert not found.admit(pairs[5][1], ("192.0.2.77", 1))
    found.gone(("192.0.2.0", 1), pairs[0][1])
    assert found.admit(pairs[6][1], ("192.0.2.78", 1))
    assert found.admit(pairs[7][1], ("192.0.2.79", 1))  # in the place of the one before
    with contextlib.suppress(ConnectionError):
        assert pairs[6][0].recv(1) == b""
    for pair in pairs:
        for line in pair:
            line.close()


def test_30_a_large_body_is_answered_413_and_the_connection_ends(door: Door, port: int) -> None:
    known = of_node(KNOWN.signed())
    sent = head("/v1/fleet/push-object", [*known, (b"content-length", b"400000000")])
    answer = talk(port, sent.replace(b"Connection: close\r\n", b""))
    assert answer.startswith(b"HTTP/1.1 413") and answer.count(b"HTTP/1.1") == 1
    chunked = head("/v1/fleet/push-object", [*known, (b"transfer-encoding", b"chunked")])
    piece = b"%x\r\n" % (CHUNK // 2 + 1) + b"x" * (CHUNK // 2 + 1) + b"\r\n"
    answer = talk(port, chunked.replace(b"Connection: close\r\n", b""), piece, piece)
    assert answer.startswith(b"HTTP/1.1 413") and answer.count(b"HTTP/1.1") == 1
    assert door.flower.got == []


def test_19_a_second_request_in_one_piece_is_judged_for_itself(door: Door, port: int) -> None:
    first = head("/health", [], "GET").replace(b"Connection: close\r\n", b"")
    answer = talk(port, first + head("/v1/control/list-runs", []))
    assert b"200 OK" in answer and b"403 Forbidden" in answer
    assert door.flower.got == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "sent",
    [
        b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0",
        b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx",
        b"POST /v1/fleet/get-run HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"POST http://x/v1/control/list-runs HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade, close\r\nVia: y\r\n\r\n",
    ],
)
def test_requests_that_are_none(door: Door, port: int, sent: bytes) -> None:
    answer = talk(port, sent)
    assert answer[9:12] in (b"400", b"401", b"403", b"404", b"505"), answer
    assert door.flower.got == []


def test_an_ipv6_socket_takes_no_ipv4(door: Door) -> None:
    """`::` is IPv6 only, so that no address of IPv4 arrives in another form."""
    try:
        listener = connections.listen("::1", 0, door.lines)
    except OSError:
        pytest.skip("this machine has no IPv6")
    with listener:
        assert listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
        with pytest.raises(OSError):
            socket.create_connection(("127.0.0.1", listener.getsockname()[1]), 1)


def test_the_limit_of_descriptors_is_raised() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        connections.most_descriptors()
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] in (hard, 65_536)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize("behind_proxy", [False, True])
def test_18_ten_nodes_with_models_of_47_mb_get_no_503(behind_proxy: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over two connections each, as our node sends them: all pieces of 5 MiB arrive, in at most 64 MiB at once."""
    door = Door(behind_proxy=behind_proxy)
    monkeypatch.setattr(door.flower, "node_of", lambda key: 1)
    piece = b"x" * (47 * 10**6 // 9)

    def send(node: Keys, port: int) -> None:
        transport = HttpTransport(SuperLinkAddress(f"127.0.0.1:{port}", insecure=True))
        for _ in range(5):
            assert transport.call("PushObject", piece, node.signed(), 100, None) == b"of Flower"
        transport.close()

    with door.serving() as port, ThreadPoolExecutor(20) as threads:
        nodes = [Keys() for _ in range(10)]
        for each in [threads.submit(send, node, port) for node in nodes for _ in range(2)]:
            each.result()
    assert len(door.flower.got) == 100
