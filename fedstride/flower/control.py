"""The questions of Flower's command line to a SuperLink: its runs, their logs, and to stop one (1.39 to 1.42).

Flower's commands cannot be used instead: they leave out what was submitted, and start a process for each question.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import click
import httpx
from flwr.cli.cli_client_interceptor import CliClientHttpInterceptor
from flwr.cli.utils import flwr_cli_exc_handler
from flwr.common.serde import run_from_proto
from flwr.proto.control_pb2 import ListRunsRequest, StopRunRequest, StreamLogsRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

NO_SUCH_RUN = "[code: 16]"
ENDED_ALREADY = "[code: 18]"


class AnswerError(Exception):
    """The SuperLink does not answer, or with an error; the text is Flower's."""


class NoSuchRunError(AnswerError):
    """The SuperLink does not have this run."""


class EndedError(AnswerError):
    """This run has ended already."""


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


class ControlApi:
    """One connection to a SuperLink. Nothing is sent before the first question; each one may raise AnswerError.

    `trusted`: the certificate of the CA to trust; with TLS and None, those of this machine are. Raises ValueError
    if it is no certificate.
    """

    def __init__(self, address: str, *, insecure: bool, trusted: bytes | None) -> None:
        try:
            self._client = ControlHttpClient.from_server_address(
                server_address=address,
                insecure=insecure,
                root_certificates=trusted,
                interceptors=[
                    CliClientHttpInterceptor(),
                    RuntimeVersionHttpInterceptor(component_name="flwr CLI"),
                ],
            )
        except (OSError, httpx.HTTPError) as error:  # ssl.SSLError is an OSError
            raise ValueError(str(error)) from error

    def runs(self, *, run_id: int | None = None, limit: int | None = None) -> list[KnownRun]:
        """The newest runs, in no order, or the one with this id."""
        with _errors():
            answer = self._client.ListRuns(ListRunsRequest(run_id=run_id, limit=limit))
        return [_known(proto) for proto in answer.run_dict.values()]

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
        kinds = {NO_SUCH_RUN: NoSuchRunError, ENDED_ALREADY: EndedError}
        kind = next((kind for code, kind in kinds.items() if code in error.message), AnswerError)
        raise kind(error.message) from None


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
