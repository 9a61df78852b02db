"""Questions about runs: Flower's own HTTP client, against a stand-in for the SuperLink."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from flwr.proto.control_pb2 import ListRunsResponse, StopRunResponse, StreamLogsResponse
from flwr.proto.run_pb2 import Run, RunStatus
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE, PROTOBUF_STREAM_MEDIA_TYPE

from fedstride.errors import ConfigError, RunError
from lab.flower.control import Control, control
from lab.flower.target import Target


class Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        status, kind, body = self.server.answers[self.path.rsplit("/", 1)[-1]]  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *details: Any) -> None: ...


Ask = Callable[..., Control]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """A connection to a SuperLink with these answers, by the last word of the path."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Answers))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        stack.callback(server.shutdown)
        target = Target("local", f"127.0.0.1:{server.server_port}", {}, insecure=True)
        connection = stack.enter_context(control(target))

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
    target = Target("tls", "127.0.0.1:1", {}, root_certificates=tmp_path / "ca.crt")
    with pytest.raises(ConfigError, match=r"ca\.crt is not a CA's certificate .*name the SuperLink's ca\.crt"):
        control(target).__enter__()
