"""What others wrote reaches a terminal without what it would act on, in each command that shows such texts."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from flwr.proto.control_pb2 import (
    ListNodesResponse,
    ListRunsResponse,
    StartRunResponse,
    StopRunResponse,
    StreamLogsResponse,
)
from flwr.proto.node_pb2 import NodeInfo
from flwr.proto.run_pb2 import Run, RunStatus
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE, PROTOBUF_STREAM_MEDIA_TYPE
from folders import Call
from rich.console import Console

from fedstride.messages import wire
from lab import terminal

KINDS = {
    "a colour": "\x1b[31m",
    "the title": "\x1b]0;title\x07",
    "a string": "\x1bP1$r\x1b\\",
    "one byte": "\x9b31m",
    "the bell": "\x07",
    "back": "abc\x08\x08\x08",
    "the line again": "abc\rxyz",
    "delete": "\x7f",
    "the other direction": "\u202eabc\u2066",
    "no width": "a\u200bb\ufeff\u00ad",
    "a line break": "a\nerror: b",
    "other line breaks": "a\x0b\x0c\x85\u2028\u2029b",
    "half a character": "\ud800",
    "a tag": "\U000e0041",
}


def inert(text: str) -> bool:
    return all(char.isprintable() or char == "\n" for char in text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_line_stays_a_line(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    text = f"before {KINDS[kind]} after"
    terminal.line(text)
    terminal.line(text, err=True)
    terminal.say(Console(), text)
    out, err = capsys.readouterr()
    assert inert(out + err)
    assert (out.count("\n"), err.count("\n")) == (2, 1)
    assert out.startswith("before ") and out.endswith(" after\n")


def test_a_block_keeps_its_own_lines_only(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.block("one\x1b[2J\ntwo\u2028three\n")
    assert capsys.readouterr().out == "one [2J\ntwo three\n"


# ---------------------------------------------------------------- a SuperLink whose texts are hostile


class Answers(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        kind, body, more = self.server.answers[self.path.rsplit("/", 1)[-1]]  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in more.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):  # who asked may have gone
            self.wfile.write(body)

    def log_message(self, *details: Any) -> None: ...


Serve = Callable[..., str]


@pytest.fixture
def serve(home: object) -> Iterator[Serve]:
    """The address of a SuperLink with these answers, by the last word of the path."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Answers))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        stack.callback(server.shutdown)

        def with_answers(**answers: Any) -> str:
            vars(server)["answers"] = {name.replace("_", "-"): each for name, each in answers.items()}
            return f"127.0.0.1:{server.server_port}"

        yield with_answers


def good(message: Any, **more: str) -> tuple[str, bytes, dict[str, str]]:
    return PROTOBUF_MEDIA_TYPE, message.SerializeToString(), more


def log_of(*pieces: str) -> tuple[str, bytes, dict[str, str]]:
    found = [StreamLogsResponse(log_output=text, latest_timestamp=1.0).SerializeToString() for text in pieces]
    return PROTOBUF_STREAM_MEDIA_TYPE, b"".join(len(each).to_bytes(4, "big") + each for each in found), {}


def a_run(text: str, **more: Any) -> Run:
    run = Run(**{"run_id": 7, "fab_id": text, "pending_at": "2026-01-01T10:00:00+00:00", **more})
    run.status.CopyFrom(RunStatus(status="finished", sub_status="failed", details=text))
    run.override_config["overrides"].string = text
    run.override_config["submission"].string = f"{text} 12ab"
    return run


def listed(*runs: Run) -> tuple[str, bytes, dict[str, str]]:
    answer = ListRunsResponse()
    for run in runs:
        answer.run_dict[run.run_id].CopyFrom(run)
    return good(answer)


def everything(text: str) -> dict[str, Any]:
    """All that a SuperLink can say, with this text in each place."""
    node = NodeInfo(node_id=1, name=text, status=text, registered_at=text)
    event = json.dumps({"event": "begins", "round": 1, "rounds": 2, "metric": text, "clients": [text]})
    log = log_of(f"{text}\n", wire.PROGRESS_LINE % event + "\n", wire.FOLDER_LINE % text + "\n")
    return {
        "list_runs": listed(a_run(text)),
        "list_nodes": good(ListNodesResponse(nodes_info=[node])),
        "stream_logs": log,
        "stop_run": good(StopRunResponse(success=True)),
        "start_run": good(StartRunResponse(run_id=7)),
    }


COMMANDS = [
    ["runs"], ["nodes"], ["logs", "7"], ["logs", "7", "--follow"], ["watch", "7"], ["stop", "7"], ["fetch", "7"],
    ["runs", "--format", "json"],
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "half a character"])  # protobuf has none
def test_no_text_of_a_superlink_acts_on_the_terminal(call: Call, serve: Serve, kind: str) -> None:
    address = serve(**everything(f"x{KINDS[kind]}y"))
    for command in COMMANDS:
        code, out, err = call(*command, "--address", address, "--insecure")
        assert inert(out + err), command
        assert code in (0, 1, 2) and "Traceback" not in out + err


@pytest.mark.slow
def test_what_submit_follows_does_not_act_on_the_terminal(call: Call, serve: Serve) -> None:
    address = serve(**everything("".join(KINDS[kind] for kind in KINDS if kind != "half a character")))
    code, out, err = call("submit", "--address", address, "--insecure", "rounds=1")
    assert code == 1 and inert(out + err)
    assert len(err.splitlines()) == 1


# ---------------------------------------------------------------- answers of another form

NESTED = "[" * 5_000 + "]" * 5_000
LONG = "9" * 5_000
EVENTS = [
    *({"event": "asked"}, {"event": "asked", "round": "x"}, {"event": "asked", "round": -1}, {"event": 3}),
    {"event": "asked", "round": 1, "clients": 7},
    {"event": "asked", "round": 1, "clients": [[1], {}]},
    {"event": "closed", "round": 1, "states": [1], "reasons": 3, "value": "x"},
    {"event": "closed", "round": 1, "states": {"a": {}}, "reasons": {"a": []}, "value": {}},
    {"event": "closed", "round": 10**30, "value": 1.0},
    {"event": "begins", "round": 1, "rounds": "many", "metric": {}, "clients": {}},
]


def events() -> tuple[str, bytes, dict[str, str]]:
    written = [json.dumps(event) for event in EVENTS]
    written += [
        f'{{"event": "closed", "round": {LONG}}}',
        f'{{"event": {NESTED}}}',
        '{"event": "closed", "value": NaN}',
    ]
    return log_of(*(wire.PROGRESS_LINE % each + "\n" for each in written))


HOSTILE: dict[str, dict[str, Any]] = {
    "no run": {"list_runs": listed()},
    "another run": {"list_runs": listed(a_run("x", run_id=8))},
    "moments that are none": {"list_runs": listed(a_run("x", pending_at="yesterday", finished_at=LONG))},
    "a moment at the end of time": {"list_runs": listed(a_run("x", pending_at="9999-12-31T23:59:59-23:59"))},
    "no message": {name: (PROTOBUF_MEDIA_TYPE, b"\xff" * 50, {}) for name in everything("x")},
    "another kind": {name: ("text/html", b"<html>", {}) for name in everything("x")},
    "nested JSON": {name: ("application/json", NESTED.encode(), {}) for name in everything("x")},
    "a compressed answer": {"list_runs": good(ListRunsResponse(), **{"content-encoding": "gzip"})},
    "a log that is no log": {"stream_logs": (PROTOBUF_STREAM_MEDIA_TYPE, b"\xff" * 50, {})},
    "events of another form": {"stream_logs": events()},
    "a line of spaces": {"stream_logs": log_of("round 1" + " " * 300_000 + "x\n")},
    "a line of progress": {"stream_logs": log_of((wire.PROGRESS_LINE % "{") * 20_000 + "\n")},
    "a round of many digits": {"stream_logs": log_of(f"round {LONG}   train loss 1.0   3 clients   1.0 s\n")},
    "a folder of many characters": {"stream_logs": log_of(wire.FOLDER_LINE % ("/x" * 100_000) + "\n")},
}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("what", HOSTILE)
def test_an_answer_of_another_form_is_one_line(
    call: Call, serve: Serve, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.watch.deployed.PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("lab.flower.submission.PAUSE_SECONDS", 0.01)
    address = serve(**{**everything("x"), **HOSTILE[what]})
    for command in COMMANDS:
        code, out, err = call(*command, "--address", address, "--insecure")
        assert code in (0, 1, 2), command
        assert "Traceback" not in out + err
        assert len(err.splitlines()) <= 1, (command, err)
        assert all(len(line) < 300_100 for line in err.splitlines())
