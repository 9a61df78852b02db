"""The questions of Flower's command line to a SuperLink: runs, their logs, submitting, registering (1.39 to 1.42).

Flower's commands cannot be used instead: they leave out what was submitted, start a process for each question, and
know no submit token.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import click
import httpx
from flwr.cli.cli_client_interceptor import CliClientHttpInterceptor
from flwr.cli.utils import flwr_cli_exc_handler
from flwr.common.serde import run_from_proto, user_config_to_proto
from flwr.proto.control_pb2 import (
    ListNodesRequest,
    ListRunsRequest,
    RegisterNodeRequest,
    StartRunRequest,
    StopRunRequest,
    StreamLogsRequest,
    UnregisterNodeRequest,
)
from flwr.proto.fab_pb2 import Fab
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from ..errors import ConfigError, last_line
from .for_nodes.certificates import verified

NO_SUCH_RUN = "[code: 16]"
ENDED_ALREADY = "[code: 18]"
REGISTERED = "[code: 23]"

ANSWER_SECONDS = 30.0
"""Of silence, after which a question is given up."""


MOST_ANSWER, MOST_LOG = 2**26, 2**30
"""Bytes of an answer, and of the log of a run."""

LOG = "/stream-logs"


class ControlAnswerError(Exception):
    """The SuperLink does not answer, or with an error; the text is Flower's."""


class NoSuchRunError(ControlAnswerError):
    """The SuperLink does not have this run."""


class EndedError(ControlAnswerError):
    """This run has ended already."""


class RegisteredError(ControlAnswerError):
    """This key has been registered before."""


class KnownRun(NamedTuple):
    """A run as its SuperLink knows it."""

    id: int
    app: str  # publisher/name
    status: str  # pending, starting, running or finished
    end: str  # completed, failed or stopped; empty before the end
    details: str
    submitted: str  # when, as in ISO 8601
    ended: str  # when; empty before
    config: Mapping[str, Any]  # as submitted


class KnownNode(NamedTuple):
    """A registered node as its SuperLink knows it."""

    id: int
    name: str
    status: str  # registered, online, offline or unregistered
    registered: str  # when, as in ISO 8601


@contextlib.contextmanager
def _without_proxies() -> Iterator[None]:
    """The environment names no proxy inside."""
    named = {name: text for name, text in os.environ.items() if name.lower().endswith("_proxy")}
    for name in named:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(named)


class ControlApi:
    """One connection to a SuperLink. Nothing is sent before the first question; each one may raise AnswerError.

    `trusted`: the certificate of the CA to trust; with TLS and None, those of this machine are. Raises ValueError
    if it is no certificate, and ConfigError for a proxy of the environment that cannot be used. `headers`: sent
    with each question, to this address only: no redirect is followed.
    """

    def __init__(
        self, address: str, *, insecure: bool, trusted: bytes | None, headers: Mapping[str, str] | None = None
    ) -> None:
        try:
            trust = False if insecure else verified(trusted)
            with _without_proxies():  # Flower's own client reads the environment; it is closed at once
                self._client = ControlHttpClient.from_server_address(
                    server_address=address,
                    insecure=insecure,
                    root_certificates=trusted,
                    interceptors=[
                        CliClientHttpInterceptor(),
                        RuntimeVersionHttpInterceptor(component_name="flwr CLI"),
                    ],
                )
            self._client._client.close()
        except (OSError, httpx.HTTPError) as error:  # ssl.SSLError is an OSError
            raise ValueError(str(error)) from error
        try:
            self._client._client = httpx.Client(
                headers={**(headers or {}), "accept-encoding": "identity"},
                event_hooks={"response": [_bound]},
                verify=trust,
                timeout=ANSWER_SECONDS,
                follow_redirects=False,
                trust_env=not insecure,  # in plain text, a proxy of the environment could read the headers
            )
        except (ImportError, ValueError, httpx.InvalidURL) as error:
            raise ConfigError(
                f"the proxy that the environment names cannot be used ({error}): set HTTPS_PROXY or ALL_PROXY to "
                "a URL as http://proxy.example.org:3128, or NO_PROXY to the address of the SuperLink"
            ) from error

    def runs(self, *, run_id: int | None = None, limit: int | None = None) -> list[KnownRun]:
        """The newest runs, in no order, or the one with this id."""
        with _errors():
            answer = self._client.ListRuns(ListRunsRequest(run_id=run_id, limit=limit))
            return [_known(proto) for proto in answer.run_dict.values() if run_id in (None, proto.run_id)]

    def start(self, bundle: bytes, config: Mapping[str, str], federation: str = "") -> int:
        """Submit a run of this app with these values of its configuration; its id."""
        request = StartRunRequest(
            fab=Fab(hash_str=hashlib.sha256(bundle).hexdigest(), content=bundle),
            override_config=user_config_to_proto(dict(config)),
            federation=federation,
        )
        with _errors():
            answer = self._client.StartRun(request)
        if not answer.HasField("run_id"):
            raise ControlAnswerError("the SuperLink did not start the run")
        return int(answer.run_id)

    def register(self, public_key: bytes, name: str) -> int:
        """Register the public key of a node (PEM) under this name; the node's id. Raises RegisteredError."""
        with _errors():
            return int(self._client.RegisterNode(RegisterNodeRequest(public_key=public_key, name=name)).node_id)

    def nodes(self) -> list[KnownNode]:
        """The nodes that are registered now."""
        with _errors():
            infos = self._client.ListNodes(ListNodesRequest()).nodes_info
        return [KnownNode(info.node_id, info.name, info.status, info.registered_at) for info in infos]

    def unregister(self, node_id: int) -> None:
        """Revoke a node's right to join."""
        with _errors():
            self._client.UnregisterNode(UnregisterNodeRequest(node_id=node_id))

    def stop(self, run_id: int) -> bool:
        """Stop a run; whether the SuperLink did."""
        with _errors():
            return bool(self._client.StopRun(StopRunRequest(run_id=run_id)).success)

    def log(self, run_id: int, after: float = 0.0) -> Iterator[tuple[str, float]]:
        """Pieces of the run's log, each with a time to continue `after`; ends with the run."""
        with _errors():
            for piece in self._client.StreamLogs(StreamLogsRequest(run_id=run_id, after_timestamp=after)):
                yield piece.log_output, piece.latest_timestamp

    def close(self) -> None:
        """Close the connection."""
        self._client.close()


@contextlib.contextmanager
def _errors() -> Iterator[None]:
    """Turn the errors of Flower's command line, which tell their kinds apart by a code in the text, into ours."""
    try:
        with flwr_cli_exc_handler():
            yield
    except click.ClickException as error:
        kinds = {NO_SUCH_RUN: NoSuchRunError, ENDED_ALREADY: EndedError, REGISTERED: RegisteredError}
        kind = next((kind for code, kind in kinds.items() if code in error.message), ControlAnswerError)
        raise kind(error.message) from None
    except ControlAnswerError:
        raise
    except Exception as error:  # of Flower's parsers, for a log that ends within a piece, and for hostile answers
        reason = last_line(str(error)) if str(error) else type(error).__name__
        raise ControlAnswerError(f"the SuperLink's answer is not whole: {reason}") from None


class _Counted(httpx.SyncByteStream):
    """The bytes of an answer, up to a limit."""

    def __init__(self, inner: httpx.SyncByteStream, most: int) -> None:
        self._inner, self._left, self._most = inner, most, most

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._inner:
            self._left -= len(piece)
            if self._left < 0:
                raise ControlAnswerError(f"the SuperLink's answer has more than {self._most} bytes")
            yield piece

    def close(self) -> None:
        self._inner.close()


def _bound(answer: httpx.Response) -> None:
    """Let no more of this answer be read than is allowed. A compressed one could become any number of bytes."""
    if answer.headers.get("content-encoding", "identity") != "identity":
        raise ControlAnswerError("the SuperLink's answer is compressed, which was not asked for")
    assert isinstance(answer.stream, httpx.SyncByteStream)
    answer.stream = _Counted(answer.stream, MOST_LOG if answer.url.path.endswith(LOG) else MOST_ANSWER)


def _known(proto: Any) -> KnownRun:
    run = run_from_proto(proto)
    return KnownRun(
        id=run.run_id,
        app=run.fab_id,
        status=run.status.status,
        end=run.status.sub_status,
        details=run.status.details,
        submitted=run.pending_at,
        ended=run.finished_at,
        config=run.override_config,
    )
