"""Asks a SuperLink for its runs and their logs, and stops runs, over the connection that submitting uses.

The names of Flower that are imported here are private (1.39). Its commands cannot be used instead: they leave out
what was submitted, and start a process for each question.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

import click
import httpx
from flwr.cli.cli_client_interceptor import CliClientHttpInterceptor
from flwr.cli.utils import flwr_cli_exc_handler
from flwr.common.serde import run_from_proto
from flwr.proto.control_pb2 import ListRunsRequest, StopRunRequest, StreamLogsRequest
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor

from fedstride import wire
from fedstride.errors import ConfigError, RunError

from .reach import explained
from .target import Target

NO_SUCH_RUN = "[code: 16]"
ENDED_ALREADY = "[code: 18]"


@dataclass(frozen=True)
class Listed:
    """A run as the SuperLink knows it."""

    run_id: str
    app: str
    status: str  # pending, starting, running or finished
    end: str  # completed, failed or stopped; empty before the end
    details: str
    since: str  # when it was submitted, as in ISO 8601
    until: str  # when it ended; empty before
    overrides: str  # as submitted
    submission: str  # who submitted it, and a random word; empty if not submitted by fedstride

    @property
    def finished(self) -> bool:
        """Whether the run has ended."""
        return self.status == "finished"


class Control:
    """One connection to a SuperLink; made by `control`."""

    def __init__(self, target: Target, client: ControlHttpClient) -> None:
        self.target = target
        self._client = client

    def runs(self, limit: int | None = None) -> list[Listed]:
        """The newest runs, the newest first. Raises RunError if the SuperLink does not answer."""
        with self._errors("the runs were not listed"):
            answer = self._client.ListRuns(ListRunsRequest(limit=limit))
        found = [_listed(proto) for proto in answer.run_dict.values()]
        return sorted(found, key=lambda run: run.since, reverse=True)

    def run(self, run_id: str) -> Listed:
        """One run. Raises ConfigError if the SuperLink does not have it."""
        with self._errors(f"run {run_id} was not looked up", run_id):
            answer = self._client.ListRuns(ListRunsRequest(run_id=number(run_id)))
        return _listed(next(iter(answer.run_dict.values())))

    def stop(self, run_id: str) -> bool:
        """Stop a run; False if it has ended already. Raises ConfigError if the SuperLink does not have it."""
        try:
            with self._errors(f"run {run_id} was not stopped", run_id):
                return bool(self._client.StopRun(StopRunRequest(run_id=number(run_id))).success)
        except RunError as error:
            if ENDED_ALREADY in str(error):
                return False
            raise

    def log(self, run_id: str, after: float = 0.0) -> Iterator[tuple[str, float]]:
        """Pieces of the run's log, each with a time to continue `after`; ends with the run.

        Raises RunError if the connection breaks, ConfigError if the SuperLink does not have the run.
        """
        with self._errors(f"the log of run {run_id} broke off", run_id):
            request = StreamLogsRequest(run_id=number(run_id), after_timestamp=after)
            for piece in self._client.StreamLogs(request):
                yield piece.log_output, piece.latest_timestamp

    def log_so_far(self, run: Listed) -> list[str]:
        """The lines of the run's log until now. Of a run that has not printed anything, this waits for a line."""
        if run.status in ("pending", "starting"):
            return []
        pieces = self.log(run.run_id)
        try:
            return [] if (first := next(pieces, None)) is None else first[0].splitlines()
        finally:
            pieces.close()  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def _errors(self, what: str, run_id: str = "") -> Iterator[None]:
        try:
            with flwr_cli_exc_handler():
                yield
        except click.ClickException as error:
            if NO_SUCH_RUN in error.message:
                raise ConfigError(
                    f"{self.target.address} has no run {run_id}: fedstride runs lists them"
                ) from None
            raise RunError(f"{what}: {explained(error, self.target)}") from None


@contextlib.contextmanager
def control(target: Target) -> Iterator[Control]:
    """A connection to the SuperLink, which is closed at the end. Nothing is sent before the first question."""
    trusted = target.root_certificates
    try:
        client = ControlHttpClient.from_server_address(
            server_address=target.address,
            insecure=target.insecure,
            root_certificates=None if trusted is None else trusted.read_bytes(),
            interceptors=[CliClientHttpInterceptor(), RuntimeVersionHttpInterceptor(component_name="flwr CLI")],
        )
    except (OSError, ValueError, httpx.HTTPError) as error:
        raise ConfigError(f"{trusted} is not a CA's certificate ({error}); name the SuperLink's ca.crt") from error
    try:
        yield Control(target, client)
    finally:
        client.close()


def number(run_id: str) -> int:
    """The id as Flower's number. Raises ConfigError if it is none."""
    if not (run_id.isascii() and run_id.isdigit() and 0 < int(run_id) < 2**64):
        raise ConfigError(f"{run_id!r} is neither a run folder nor a run id: fedstride runs lists both")
    return int(run_id)


def _listed(proto: object) -> Listed:
    run = run_from_proto(proto)  # type: ignore[arg-type]
    given = run.override_config
    return Listed(
        run_id=str(run.run_id),
        app=run.fab_id,
        status=run.status.status,
        end=run.status.sub_status,
        details=run.status.details,
        since=_local(run.pending_at),
        until=_local(run.finished_at),
        overrides=str(given.get("overrides", "")),
        submission=str(given.get(wire.SUBMISSION, "")),
    )


def _local(moment: str) -> str:
    """A moment of the SuperLink (UTC) in this machine's time, to the second."""
    return datetime.fromisoformat(moment).astimezone().isoformat(timespec="seconds") if moment else ""
