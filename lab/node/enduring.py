"""Lets a SuperNode survive requests that its SuperLink answers with an error. Knows nothing of messages' contents.

Flower's loop (1.39) repeats a request only if the SuperLink cannot be reached. After any other error it ends, but
the process goes on: a node that does nothing and looks healthy. The thread for heartbeats ends likewise, and the
SuperLink then believes that the node is gone. Such an error is the answer, for example, if the SuperLink's
database is locked for more than five seconds.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from fedstride.replacing import replaced

from .seams import CONNECTION, LOOP

PASSING = frozenset(
    {
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.ABORTED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
"""Errors of a SuperLink that may be over when it is asked again. After any other the node ends."""

_log = logging.getLogger("flwr").log


@contextlib.contextmanager
def enduring() -> Iterator[None]:
    """Within this context, a SuperNode asks again for messages, and goes on to say that it is there."""
    loop, connection = importlib.import_module(LOOP), importlib.import_module(CONNECTION)
    with (
        replaced(loop, _pull_and_store_message=repeated(loop._pull_and_store_message)),
        replaced(connection, HeartbeatSender=lasting(connection.HeartbeatSender)),
    ):
        yield


def repeated(pull: Callable[..., Any]) -> Callable[..., Any]:
    """A `_pull_and_store_message` that returns None, as without a message, after an error that may pass.

    Flower's loop then waits, and asks again. Of several errors in a row only the first one is logged, and later
    that the SuperLink answers again.
    """
    is_failing = False

    def repeated_pull(**given: Any) -> Any:
        nonlocal is_failing
        try:
            run_id = pull(**given)
        except grpc.RpcError as error:
            if error.code() not in PASSING:
                raise
            if not is_failing:
                _log(
                    logging.WARNING,
                    "the SuperLink answered with an error (%s: %s), see its log; it is asked again until it "
                    "answers",
                    error.code().name,
                    " ".join(str(error.details()).split()),
                )
            is_failing = True
            return None
        if is_failing:
            _log(logging.INFO, "the SuperLink answers again")
        is_failing = False
        return run_id

    return repeated_pull


def lasting(sender: Callable[..., Any]) -> Callable[..., Any]:
    """A `HeartbeatSender` that sends the heartbeat again after an error that may pass."""

    def made(heartbeat: Callable[[], bool]) -> Any:
        def beat() -> bool:
            try:
                return heartbeat()
            except grpc.RpcError as error:
                if error.code() not in PASSING:
                    raise
                return False

        return sender(beat)

    return made
