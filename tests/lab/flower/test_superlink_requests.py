"""Questions about runs: Flower's own HTTP client, against a stand-in for the SuperLink."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from flwr.proto.control_pb2 import (
    ListNodesResponse,
    ListRunsResponse,
    RegisterNodeRequest,
    RegisterNodeResponse,
    StartRunRequest,
    StartRunResponse,
    StopRunResponse,
    StreamLogsResponse,
)
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.run_pb2 import Run, RunStatus
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE, PROTOBUF_STREAM_MEDIA_TYPE

from fedstride.errors import ConfigError, RunError
from lab.flower.superlink_choice import ChosenSuperLink
from lab.flower.superlink_requests import Control, control
from superlink import token


class Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.got = (self.path, self.headers.get("fedstride-token"), body)  # type: ignore[attr-defined]
        status, kind, body = self.server.answers[self.path.rsplit("/", 1)[-1]]  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *details: Any) -> None: ...


Ask = Callable[..., Control]


@pytest.fixture(autouse=True)
def flower_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An FLWR_HOME without tokens."""
    monkeypatch.setenv("FLWR_HOME", str(tmp_path))
    monkeypatch.delenv("FEDSTRIDE_TOKEN_FILE", raising=False)
    return tmp_path


@pytest.fixture
def ask() -> Iterator[Ask]:
    """A connection to a SuperLink with these answers, by the last word of the path."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Answers))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        stack.callback(server.shutdown)
        target = ChosenSuperLink("local", f"127.0.0.1:{server.server_port}", insecure=True)
        connection = stack.enter_context(control(target))

        vars(connection)["server"] = server

        def with_answers(**answers: tuple[int, str, bytes]) -> Control:
            vars(server)["answers"] = {name.replace("_", "-"): each for name, each in answers.items()}
            return connection

        yield with_answers


def good(message: Any) -> tuple[int, str, bytes]:
    return 200, PROTOBUF_MEDIA_TYPE, message.SerializeToString()


def refused(code: int, text: str) -> tuple[int, str, bytes]:
    return 400, "application/json", json.dumps({"code": code, "detail": text}).encode()


def frames(*pieces: str) -> bytes:
    answers = [StreamLogsResponse(log_output=text, latest_timestamp=i) for i, text in enumerate(pieces, 1)]
    found = [answer.SerializeToString() for answer in answers]
    return b"".join(len(each).to_bytes(4, "big") + each for each in found)


def some_run(number: int, submitted: str) -> Run:
    run = Run(run_id=number, fab_id="fedstride/fedstride", pending_at=submitted)
    run.status.CopyFrom(RunStatus(status="finished", sub_status="failed", details="it broke"))
    run.override_config["overrides"].string = "strategy=fedlws"
    run.override_config["submission"].string = "anna@clinic 12ab"
    return run


def test_runs_are_listed_the_newest_first(ask: Ask) -> None:
    answer = ListRunsResponse()
    for number, submitted in ((5, "2026-01-01T10:00:00+00:00"), (2**64 - 1, "2026-01-02T10:00:00+00:00")):
        answer.run_dict[number].CopyFrom(some_run(number, submitted))
    newest, oldest = ask(list_runs=good(answer)).runs()
    assert (newest.run_id, oldest.run_id) == (str(2**64 - 1), "5")
    assert (oldest.app, oldest.status, oldest.end, oldest.details) == (
        "fedstride/fedstride",
        "finished",
        "failed",
        "it broke",
    )
    assert (oldest.overrides, oldest.submission) == ("strategy=fedlws", "anna@clinic 12ab")
    assert oldest.since.startswith(("2026-01-01T", "2025-12-31T", "2026-01-02T")) and oldest.until == ""


def test_a_run_that_the_superlink_does_not_have(ask: Ask) -> None:
    missing = refused(16, "Run ID not found.")
    connection = ask(list_runs=missing, stop_run=missing, stream_logs=missing)
    for question in (connection.run, connection.stop, lambda run: list(connection.log(run))):
        with pytest.raises(ConfigError, match="has no run 7: fedstride runs lists them"):
            question("7")


def test_a_run_that_has_ended_is_not_stopped(ask: Ask) -> None:
    assert not ask(stop_run=refused(18, "Run is already finished.")).stop("7")
    assert ask(stop_run=good(StopRunResponse(success=True))).stop("7")


def test_other_errors_have_flowers_reason(ask: Ask) -> None:
    with pytest.raises(RunError, match=r"run 7 was not stopped: \[code: 3\] No entitlement"):
        ask(stop_run=refused(3, "No entitlement")).stop("7")
    with pytest.raises(RunError, match="the runs were not listed: the server on port"):
        ask(list_runs=(500, "text/plain", b"a fault")).runs()


def test_a_log_arrives_in_pieces_with_their_times(ask: Ask) -> None:
    connection = ask(stream_logs=(200, PROTOBUF_STREAM_MEDIA_TYPE, frames("round 1\nrou", "nd 2\n")))
    assert list(connection.log("7")) == [("round 1\nrou", 1.0), ("nd 2\n", 2.0)]


def test_a_log_that_ends_within_a_piece_broke_off(ask: Ask) -> None:
    pieces = ask(stream_logs=(200, PROTOBUF_STREAM_MEDIA_TYPE, frames("one\n", "two\n")[:-1])).log("7")
    assert next(pieces) == ("one\n", 1.0)
    with pytest.raises(RunError, match="the log of run 7 broke off: the SuperLink's answer is not whole"):
        next(pieces)


def test_what_is_no_certificate_is_named(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("not a certificate")
    target = ChosenSuperLink("tls", "127.0.0.1:1", root_certificates=tmp_path / "ca.crt")
    with pytest.raises(ConfigError, match=r"ca\.crt is not a CA's certificate .*name the SuperLink's ca\.crt"):
        control(target).__enter__()


# ---------------------------------------------------------------- submitting, registering, the token


def got(connection: Control) -> Any:
    return vars(connection)["server"].got


def test_a_run_is_submitted_as_given(ask: Ask) -> None:
    """Its values arrive unchanged, whatever characters they have."""
    connection = ask(start_run=good(StartRunResponse(run_id=2**64 - 1)))
    config = {"overrides": "out='/srv/it''s' name=\"ä 😀 \x7f\"", "submission": "anna@clinic 12ab"}
    assert connection.start(b"an app", config) == str(2**64 - 1)
    sent = StartRunRequest.FromString(got(connection)[2])
    assert {key: value.string for key, value in sent.override_config.items()} == config
    assert (sent.fab.content, sent.fab.hash_str) == (b"an app", hashlib.sha256(b"an app").hexdigest())


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refused(15, "Invalid run configuration."), r"no run was submitted to .*: \[code: 15\] Invalid run"),
        (
            (403, "application/json", b'{"detail": "needs the submit token"}'),
            "submitted to .*: needs the submit token",
        ),
        (good(StartRunResponse()), "the SuperLink did not start the run"),
    ],
)
def test_a_superlink_that_refuses_a_run(ask: Ask, answer: Any, said: str) -> None:
    with pytest.raises(RunError, match=said):
        ask(start_run=answer).start(b"", {})


def test_a_key_is_registered_once(ask: Ask) -> None:
    connection = ask(register_node=good(RegisterNodeResponse(node_id=8876)))
    assert connection.register(b"a key", "a") == "8876"
    sent = RegisterNodeRequest.FromString(got(connection)[2])
    assert (sent.public_key, sent.name) == (b"a key", "a")
    assert ask(register_node=refused(23, "Public key already in use.")).register(b"a key", "a") is None
    with pytest.raises(RunError, match=r"a was not registered at 127\.0\.0\.1:\d+: \[code: 3\] No entitlement"):
        ask(register_node=refused(3, "No entitlement")).register(b"a key", "a")


def test_registered_nodes_are_listed_by_name(ask: Ask) -> None:
    nodes = [NodeInfo(node_id=1, name="b", status="online"), NodeInfo(node_id=2, name="a", status="offline"),
             NodeInfo(node_id=3, name="c", status="unregistered")]  # fmt: skip
    found = ask(list_nodes=good(ListNodesResponse(nodes_info=nodes))).nodes()
    assert [(node.id, node.name) for node in found] == [(2, "a"), (1, "b")]


def test_the_token_of_the_address_is_sent(ask: Ask, flower_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the SuperLink that wrote it, to no other, and not where a redirect points."""
    server = vars(ask(list_runs=good(ListRunsResponse())))["server"]
    target = ChosenSuperLink("local", f"127.0.0.1:{server.server_port}", insecure=True)
    path = token.place(f"localhost:{server.server_port}")
    written = token.renew(path)
    with control(target) as connection:
        connection.runs()
    assert server.got[1] == written
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # it could read the token
    with control(target) as connection:
        connection.runs()
    path.rename(path.with_name("localhost:1"))
    with control(target) as connection:
        connection.runs()
    assert server.got[1] is None


ODD_PROXIES = (
    {"ALL_PROXY": "socks5://127.0.0.1:9"},
    {"all_proxy": "socks5h://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9"},
    {"HTTP_PROXY": ":::", "HTTPS_PROXY": "nonsense"},
    {"http_proxy": "ftp://127.0.0.1:9", "NO_PROXY": "*"},
)


@pytest.mark.parametrize("variables", ODD_PROXIES)
def test_a_proxy_of_the_environment_does_not_matter_in_plain_text(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    assert ask(list_runs=good(ListRunsResponse())).runs() == []
    assert {name: os.environ.get(name) for name in variables} == variables


@pytest.mark.parametrize("variables", ODD_PROXIES[:2])
def test_a_proxy_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]) -> None:
    if find_spec("socksio") is not None:
        pytest.skip("this environment can use SOCKS")
    for name, text in variables.items():
        monkeypatch.setenv(name, text)
    expected = pytest.raises(ConfigError, match=r"^the proxy that the environment names .*SOCKS.*NO_PROXY")
    with expected, control(ChosenSuperLink("", "superlink.example:8000")):
        pass


def test_a_redirect_is_not_followed(ask: Ask) -> None:
    with pytest.raises(RunError, match="the runs were not listed"):
        ask(list_runs=(307, "text/plain", b"")).runs()


def test_a_token_is_sent_in_plain_text_to_the_loopback_only(monkeypatch: pytest.MonkeyPatch) -> None:
    path = token.place("192.0.2.7:8000")
    token.renew(path)
    monkeypatch.setenv("FEDSTRIDE_TOKEN_FILE", str(path))
    with pytest.raises(ConfigError, match=r"would be sent in plain text to 192\.0\.2\.7:8000: use TLS"):
        ChosenSuperLink("", "192.0.2.7:8000", insecure=True).headers()
    assert ChosenSuperLink("", "192.0.2.7:8000").headers().keys() == {"fedstride-token"}
