"""Asks a SuperLink for its runs and their logs, and stops runs, over the connection that submitting uses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from fedstride.errors import ConfigError, RunError
from fedstride.flower.control_api import (
    ControlAnswerError,
    ControlApi,
    EndedError,
    KnownNode,
    KnownRun,
    NoSuchRunError,
    RegisteredError,
)
from fedstride.messages import wire

from .superlink_choice import ChosenSuperLink
from .why_unreachable import explained

UNREGISTERED = "unregistered"


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

    def __init__(self, target: ChosenSuperLink, api: ControlApi) -> None:
        self.target = target
        self._api = api

    def runs(self, limit: int | None = None) -> list[Listed]:
        """The newest runs, the newest first. Raises RunError if the SuperLink does not answer."""
        with self._errors("the runs were not listed"):
            runs = [_listed(run) for run in self._api.runs(limit=limit)]
        return sorted(runs, key=lambda run: run.since, reverse=True)

    def run(self, run_id: str) -> Listed:
        """One run. Raises ConfigError if the SuperLink does not have it."""
        with self._errors(f"run {run_id} was not looked up", run_id):
            runs = self._api.runs(run_id=number(run_id))
            if not runs:
                raise NoSuchRunError
            return _listed(runs[0])

    def start(self, bundle: bytes, config: Mapping[str, str]) -> str:
        """Submit a run; its id. Raises RunError if the SuperLink does not accept it."""
        with self._errors(f"no run was submitted to {self.target.address}"):
            return str(self._api.start(bundle, config, self.target.federation))

    def register(self, public_key: bytes, name: str) -> str | None:
        """Register a node's public key; the node's id, or None if it was registered before."""
        with self._errors(f"{name} was not registered at {self.target.address}"):
            try:
                return str(self._api.register(public_key, name))
            except RegisteredError:
                return None

    def nodes(self) -> list[KnownNode]:
        """The registered nodes, in the order of their names."""
        with self._errors("the nodes were not listed"):
            nodes = self._api.nodes()
        return sorted((node for node in nodes if node.status != UNREGISTERED), key=lambda node: node.name)

    def unregister(self, node_id: int) -> None:
        """Revoke a node's right to join. Raises RunError if the SuperLink does not have it."""
        with self._errors(f"node {node_id} was not unregistered"):
            self._api.unregister(node_id)

    def stop(self, run_id: str) -> bool:
        """Stop a run; False if it has ended already. Raises ConfigError if the SuperLink does not have it."""
        with self._errors(f"run {run_id} was not stopped", run_id):
            try:
                return self._api.stop(number(run_id))
            except EndedError:
                return False

    def log(self, run_id: str, after: float = 0.0) -> Iterator[tuple[str, float]]:
        """Pieces of the run's log, each with a time to continue `after`; ends with the run.

        Raises RunError if the connection breaks, ConfigError if the SuperLink does not have the run.
        """
        with self._errors(f"the log of run {run_id} broke off", run_id):
            yield from self._api.log(number(run_id), after)

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
            yield
        except NoSuchRunError:
            raise ConfigError(f"{self.target.address} has no run {run_id}: fedstride runs lists them") from None
        except ControlAnswerError as error:
            raise RunError(f"{what}: {explained(error, self.target)}") from None


@contextlib.contextmanager
def control(target: ChosenSuperLink) -> Iterator[Control]:
    """A connection to the SuperLink, which is closed at the end. Nothing is sent before the first question."""
    trusted, headers = target.root_certificates, target.headers()
    try:
        api = ControlApi(
            target.address,
            insecure=target.insecure,
            trusted=None if trusted is None else trusted.read_bytes(),
            headers=headers,
        )
    except ConfigError:
        raise
    except (OSError, ValueError) as error:
        raise ConfigError(f"{trusted} is not a CA's certificate ({error}); name the SuperLink's ca.crt") from error
    try:
        yield Control(target, api)
    finally:
        api.close()


def number(run_id: str) -> int:
    """The id as Flower's number. Raises ConfigError if it is none."""
    if not (run_id.isascii() and run_id.isdigit() and len(run_id) <= 20 and 0 < int(run_id) < 2**64):
        raise ConfigError(f"{run_id[:80]!r} is neither a run folder nor a run id: fedstride runs lists both")
    return int(run_id)


def _listed(run: KnownRun) -> Listed:
    return Listed(
        run_id=str(run.id),
        app=run.app,
        status=run.status,
        end=run.end,
        details=run.details,
        since=_local(run.submitted),
        until=_local(run.ended),
        overrides=str(run.config.get(wire.OVERRIDES, "")),
        submission=str(run.config.get(wire.SUBMISSION, "")),
    )


def _local(moment: str) -> str:
    """A moment of the SuperLink (UTC) in this machine's time, to the second; empty for what is no moment."""
    try:
        return datetime.fromisoformat(moment).astimezone().isoformat(timespec="seconds")
    except (ValueError, OverflowError):  # an empty text, too
        return ""
