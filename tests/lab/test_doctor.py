"""What `fedstride doctor` says of the installed Flower and of SuperLinks: one line each."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedstride.flower.for_nodes import connecting
from lab import doctor
from lab.flower.flower_command import free_port


class SuperLinkLike(http.server.BaseHTTPRequestHandler):
    """Answers as a SuperLink of Flower 1.40; without `has_fleet`, as the port for submitting of 1.39."""

    has_fleet = True

    def do_GET(self) -> None:
        self._status(200 if self.path == "/health" else 404)

    def do_POST(self) -> None:
        self._status(401 if self.has_fleet else 404)

    def _status(self, status: int) -> None:
        self.send_response(status)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *details: object) -> None: ...


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), SuperLinkLike) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def about(topic: str, **options: str) -> list[doctor.Finding]:
    return [each for each in doctor.examine(**options) if each.topic == topic]  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def only_flower(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    (home / "config.toml").write_text("")
    monkeypatch.setattr(doctor, "CHECKS", (doctor._flower,))


@pytest.mark.parametrize(
    ("version", "state", "words"),
    [
        ((1, 39), "ok", "gRPC, on a port of their own"),
        ((1, 42), "ok", "HTTP, on the port for submitting"),
        ((1, 99), "warn", "HTTP"),
    ],
)
def test_the_installed_flower_and_its_transport(
    version: tuple[int, int], state: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connecting, "installed", lambda: version)
    (found,) = about("nodes")
    assert found.state == state and words in found.text
    assert ("was not tested" in found.advice) == (state == "warn")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theirs", "ours", "state", "words"),
    [
        ("http", "http", "ok", "nodes use HTTP, as here"),
        ("http", "grpc", "warn", "nodes use HTTP, unlike those of this machine"),
        ("control", "grpc", "ok", "nodes use gRPC, as here"),
        ("control", "http", "warn", "nodes use gRPC, unlike those of this machine"),
    ],
)
def test_the_transport_of_a_superlink(
    address: str, theirs: str, ours: str, state: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SuperLinkLike, "has_fleet", theirs == "http")
    monkeypatch.setattr(connecting, "uses_http", lambda: ours == "http")
    (found,) = about("superlink", superlink=address)
    assert found.state == state and found.text.endswith(words)
    assert found.advice.startswith("pip install 'fedstride[deployment") == (state == "warn")


@pytest.mark.slow
def test_connections_are_asked_and_those_that_do_not_answer_say_why(address: str, home: Path) -> None:
    silent = f"127.0.0.1:{free_port()}"
    (home / "config.toml").write_text(
        f'[superlink.here]\naddress = "{address}"\ninsecure = true\n'
        f'[superlink.silent]\naddress = "{silent}"\ninsecure = true\n'
        f'[superlink.secure]\naddress = "{address}"\n[superlink.odd]\naddress = "somewhere"\n'
    )
    here, quiet, secure, odd = (each.text for each in about("superlink"))
    assert here.startswith(f"here ({address}) is a SuperLink of Flower 1.40 or later")
    assert quiet.startswith(f"silent ({silent}): no process listens")
    assert "does not use TLS" in secure
    assert "has no port" in odd
