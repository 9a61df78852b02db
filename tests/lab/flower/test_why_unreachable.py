"""Why a SuperLink cannot be reached: servers of each kind on loopback, with real sockets and certificates."""

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

from fedstride.errors import RunError
from lab import doctor
from lab.deployment.certificate_authority import CA_DAYS
from lab.deployment.certificates import make
from lab.flower import why_unreachable
from lab.flower.flower_command import free_port
from lab.flower.submission import submit
from lab.flower.superlink_choice import ChosenSuperLink, at_address, named
from lab.flower.why_unreachable import UNREACHABLE, explained, why

pytestmark = pytest.mark.slow


class SuperLinkLike(http.server.BaseHTTPRequestHandler):
    """Answers /health only."""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/health" else 404)
        self.end_headers()

    def log_message(self, *details: object) -> None: ...


class Other(SuperLinkLike):
    """Another web server."""

    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()


class Mute(SuperLinkLike):
    """Speaks another protocol: answers everything with a line of its own."""

    def handle(self) -> None:
        self.wfile.write(b"SSH-2.0-other\r\n")


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
def serving(handler: type[SuperLinkLike], certificate: Path | None = None) -> Iterator[str]:
    """A server on loopback, with TLS if there is a certificate; its address."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate / "server.crt", certificate / "server.key")
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def target(address: str, trusted: Path | None = None, *, insecure: bool | None = None) -> ChosenSuperLink:
    insecure = trusted is None if insecure is None else insecure
    return ChosenSuperLink("x", address, insecure, trusted)


def test_a_superlink_that_answers(certificates: Path) -> None:
    with serving(SuperLinkLike) as plain, serving(SuperLinkLike, certificates / "good") as secure:
        assert why(target(plain)) is None
        assert why(target(secure, certificates / "good/ca.crt")) is None


@pytest.mark.parametrize(
    ("handler", "server", "trusted", "words"),
    [
        (SuperLinkLike, "good", "foreign", ["is not signed by the CA in", "foreign/ca.crt", "use the ca.crt"]),
        (SuperLinkLike, "expired", "expired", ["has expired", "fedstride certificates"]),
        (SuperLinkLike, "early", "early", ["is not yet valid", "check the clocks"]),
        (SuperLinkLike, "old", "old", ["the CA in", "old/ca.crt has expired", "all need a new CA"]),
        (SuperLinkLike, "good", None, ["uses TLS", "--root-certificates ca.crt", "instead of --insecure"]),
        (SuperLinkLike, None, "good", ["does not use TLS", "--insecure"]),
        (Other, None, None, ["is not a SuperLink", "status 404", "8000 for submitting"]),
        (Other, "good", "good", ["is not a SuperLink", "status 404"]),
        (Mute, None, None, ["is not a SuperLink", "not answer in HTTP"]),
        (Mute, None, "good", ["does not use TLS", "check the port"]),
    ],
)
def test_each_server_has_its_own_line(
    certificates: Path, handler: type[SuperLinkLike], server: str | None, trusted: str | None, words: list[str]
) -> None:
    with serving(handler, server and certificates / server) as address:
        reason = why(target(address, trusted and certificates / trusted / "ca.crt"))
    assert reason is not None
    assert "\n" not in reason
    assert all(word in reason for word in words), reason


@pytest.mark.parametrize(("name", "words"), [("expired", "has expired"), ("old", "old/ca.crt has expired")])
def test_doctor_says_the_same_in_one_line(certificates: Path, name: str, words: str) -> None:
    with serving(SuperLinkLike, certificates / name) as address:
        found = doctor._superlink(target(address, certificates / name / "ca.crt"))
    assert found.state == "warn" and words in found.text and "\n" not in found.text


def test_a_certificate_for_another_name(certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda host, *rest, **more: real("127.0.0.1", *rest, **more)
    )  # a name that leads to this machine, which no machine of a test can be relied on to have
    with serving(SuperLinkLike, certificates / "good") as address:
        port = address.rpartition(":")[2]
        reason = why(target(f"other.example:{port}", certificates / "good/ca.crt"))
    assert reason is not None and "it is not valid for 'other.example'" in reason and "--name" in reason


def test_a_file_that_is_no_certificate(certificates: Path, tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("no certificate")
    with serving(SuperLinkLike, certificates / "good") as address:
        for name in ("ca.crt", "missing.crt"):
            reason = why(target(address, tmp_path / name))
            assert reason is not None and "is not a CA's certificate" in reason and name in reason


def test_no_process_no_name_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no process listens on port" in str(why(target(f"127.0.0.1:{free_port()}")))
    assert "has no port" in str(why(target("localhost")))
    assert "the name 'nowhere.invalid' is not known" in str(why(target("nowhere.invalid:8000")))
    monkeypatch.setattr(why_unreachable, "SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:  # its queue is full, so it drops connections
        port = full.getsockname()[1]
        waiting = []
        try:
            for _ in range(4):
                client = socket.socket()
                client.setblocking(False)
                client.connect_ex(("127.0.0.1", port))
                waiting.append(client)
            assert "does not answer on port" in str(why(target(f"127.0.0.1:{port}")))
        finally:
            for client in waiting:
                client.close()


def test_another_error_of_flower_stays_as_it_is() -> None:
    error = RunError("flwr run: [code: 15] Invalid run configuration.")
    assert explained(error, target(f"127.0.0.1:{free_port()}")) == str(error)
    assert "no process listens" in explained(RunError(UNREACHABLE[0]), target(f"127.0.0.1:{free_port()}"))


def test_a_connection_of_flowers_file_knows_its_certificate(home: Path) -> None:
    (home / "config.toml").write_text(
        '[superlink.a]\naddress = "h:1"\nroot-certificates = "/x/ca.crt"\n'
        '[superlink.b]\naddress = "h:1"\ninsecure = true\n[superlink.c]\naddress = "h:1"\n'
    )
    found = [(t.insecure, t.root_certificates) for t in map(named, "abc")]
    assert found == [(False, Path("/x/ca.crt")), (True, None), (False, None)]


def test_the_command_has_the_line(certificates: Path) -> None:
    """A submission over Flower's client, whose own line is the same for all of them."""
    trusted = certificates / "foreign/ca.crt"
    with serving(SuperLinkLike, certificates / "good") as address:
        with pytest.raises(RunError, match=r"no run was submitted to .*: .*is not signed by the CA in"):
            submit(at_address(address, trusted), [])
        with pytest.raises(RunError, match=r"no run was submitted to .*: no process listens on port"):
            submit(at_address(f"127.0.0.1:{free_port()}", None), [])
