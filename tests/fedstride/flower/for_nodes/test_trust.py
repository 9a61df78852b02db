"""What a node says of a SuperLink whose certificate or TLS is not what it expects; the same on both transports."""

from __future__ import annotations

import contextlib
import http.server
import socket
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from fedstride.flower.for_nodes import connecting
from fedstride.flower.for_nodes.connection import AnswerError, SuperLinkAddress
from lab.deployment.certificate_authority import CA_DAYS
from lab.deployment.certificates import make


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("certificates")
    now = datetime.now(UTC)
    for name, made, days in (
        ("good", now, 1),
        ("foreign", now, 1),
        ("expired", now - timedelta(days=3), 1),
        ("early", now + timedelta(days=3), 1),
        ("old", now - timedelta(days=CA_DAYS + 1), 1),  # with its CA
    ):
        make(root / name, addresses=["127.0.0.1"], days=days, now=made)
    return root


@contextlib.contextmanager
def serving(certificate: Path | None) -> Iterator[str]:
    """A server on loopback that answers nothing but TLS, or HTTP without it; its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a line that a client refuses
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate / "server.crt", certificate / "server.key")
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.slow
@pytest.mark.parametrize("wait", [False, True])
@pytest.mark.parametrize("http", [False, True], ids=["grpc", "http"])
@pytest.mark.parametrize(
    ("server", "trusted", "words"),
    [
        (
            "good",
            "foreign",
            r"not accepted \(unable to get local issuer certificate\): it is not signed by the CA",
        ),
        ("expired", "expired", r"not accepted \(certificate has expired\): the SuperLink needs a new one"),
        ("early", "early", r"not accepted \(certificate is not yet valid\): .* if the clocks are right"),
        ("old", "old", "the CA in --root-certificates has expired; all need a new CA, as docs/operations.md says"),
        ("good", None, "it uses TLS, and this node was started with --insecure"),
        (None, "good", "it does not use TLS .*, and this node expects it"),
    ],
)
def test_a_fault_of_tls_is_named_and_ends_the_node(
    certificates: Path,
    server: str | None,
    trusted: str | None,
    words: str,
    http: bool,
    wait: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also one that waits for its SuperLink."""
    monkeypatch.setattr(connecting, "uses_http", lambda: http)
    roots = None if trusted is None else (certificates / trusted / "ca.crt").read_bytes()
    with serving(server and certificates / server) as address:
        place = SuperLinkAddress(address, insecure=trusted is None, root_certificates=roots)
        with pytest.raises(AnswerError, match=words) as raised:
            connecting.connected(place, None, wait=wait, say=print)
    assert "\n" not in str(raised.value)


@pytest.mark.slow
def test_a_certificate_for_another_name(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest, **more: real("127.0.0.1", *rest, **more))
    with serving(certificates / "good") as address:
        roots = (certificates / "good/ca.crt").read_bytes()
        fault = connecting.tls_fault(
            SuperLinkAddress(f"other.example:{address.rpartition(':')[2]}", root_certificates=roots)
        )
    assert fault is not None and "use a name that it has, or make one with" in fault and "'other.example'" in fault


@pytest.mark.slow
def test_a_certificate_that_is_accepted_has_no_fault(certificates: Path) -> None:
    with serving(certificates / "good") as address:
        roots = (certificates / "good/ca.crt").read_bytes()
        assert connecting.tls_fault(SuperLinkAddress(address, root_certificates=roots)) is None
        assert (
            connecting.tls_fault(SuperLinkAddress(address, root_certificates="Zürich\n".encode() + roots)) is None
        )
    with serving(None) as address:
        assert connecting.tls_fault(SuperLinkAddress(address, insecure=True)) is None
    assert connecting.tls_fault(SuperLinkAddress("127.0.0.1:1", insecure=True)) is None
    assert connecting.tls_fault(SuperLinkAddress("127.0.0.1:1", insecure=True, proxy="http://127.0.0.1:2")) is None
