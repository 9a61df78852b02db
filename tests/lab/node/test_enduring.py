"""A SuperNode asks again after an error of its SuperLink, and ends after one that will not pass."""

from __future__ import annotations

import logging
import threading
from typing import Any

import grpc
import pytest
from flwr.supercore.heartbeat import HeartbeatSender

from lab.node.enduring import lasting, repeated


class Answer(grpc.RpcError):
    """An error as a gRPC client raises it."""

    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__()
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "Internal\nserver error."


def asked(*answers: Any) -> Any:
    """A `_pull_and_store_message` with these results; an error is raised."""
    left = list(answers)

    def pull(*, state: str) -> Any:
        assert state == "the state"
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return repeated(pull)


def test_after_errors_that_pass_the_loop_goes_on_and_says_so_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    internal, unknown = Answer(grpc.StatusCode.INTERNAL), Answer(grpc.StatusCode.UNKNOWN)
    pull = asked(7, internal, unknown, internal, None, 8, unknown, 9)
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with caplog.at_level(logging.INFO, "flwr"):
        assert [pull(state="the state") for _ in range(8)] == [7, None, None, None, None, 8, None, 9]
    assert [record.getMessage() for record in caplog.records] == [
        "the SuperLink answered with an error (INTERNAL: Internal server error.), see its log; it is asked again "
        "until it answers",
        "the SuperLink answers again",
        "the SuperLink answered with an error (UNKNOWN: Internal server error.), see its log; it is asked again "
        "until it answers",
        "the SuperLink answers again",
    ]


@pytest.mark.parametrize("code", [grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND])
def test_other_errors_end_the_loop(code: grpc.StatusCode) -> None:
    with pytest.raises(Answer):
        asked(Answer(code))(state="the state")


def test_an_error_that_is_none_of_the_superlink_ends_the_loop() -> None:
    with pytest.raises(KeyError):
        asked(KeyError("x"))(state="the state")


def test_flowers_heartbeats_go_on_after_an_error_that_passes() -> None:
    """Without `lasting` the thread ends with the first error."""
    answers, repeated_once = [True, Answer(grpc.StatusCode.INTERNAL)], threading.Event()

    def heartbeat() -> bool:
        answer = answers.pop()
        if isinstance(answer, Exception):
            raise answer
        repeated_once.set()
        return answer

    sender = lasting(HeartbeatSender)(heartbeat)
    sender.start()
    assert repeated_once.wait(30.0)
    assert sender.is_running
    sender.stop()


def test_other_errors_of_a_heartbeat_are_raised() -> None:
    def heartbeat() -> bool:
        raise Answer(grpc.StatusCode.NOT_FOUND)

    with pytest.raises(Answer):
        lasting(lambda beat: beat)(heartbeat)()
