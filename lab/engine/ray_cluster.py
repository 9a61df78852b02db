"""Connects to a Ray cluster that is already there.

Ray is imported when it is used: only runs on a cluster need it. Its address is that of the environment variable
RAY_ADDRESS, else of a cluster on this machine.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
from collections.abc import Iterator, Mapping
from logging import WARNING
from typing import Any, NamedTuple

from fedstride.errors import RunError
from fedstride.flower.logs import log
from fedstride.processes import unix_signals
from server_app.records.versions import versions

PASSED_ON = ("FEDSTRIDE_DATA", "FEDSTRIDE_CACHE", "FEDSTRIDE_RUNS")
"""Environment variables that processes on other machines get, if they have none of their own."""

SAME = ("python", "fedstride", "flwr", "torch", "numpy")
"""What must have the same version everywhere, because results and messages depend on it."""


REACH_SECONDS = 10.0

SETTINGS = b"\x04"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + SETTINGS + bytes(5)
"""How both sides of HTTP/2, and so of gRPC, begin (RFC 9113, 3.4): three bytes, then this kind of frame."""

OF_CLIENTS = "10001"
"""The port of `ray://HOST`, if it names none."""


class ProcessFacts(NamedTuple):
    """What a process on a machine of the cluster says of itself."""

    host: str
    versions: Mapping[str, str]
    sees: bool  # whether it sees the folder of the runs
    closed: bool  # whether its Ray asks for a token


class Demands(NamedTuple):
    """What is asked of each machine."""

    folder: str  # of the runs: each machine must see it
    closed: bool = True  # whether its Ray must ask for a token


OPEN = (
    "without a token, everybody who reaches the cluster can run code in it: set RAY_AUTH_MODE=token here and "
    "where it is started (docs/cluster.md), or permit it with allow=[ray_without_token]"
)


@contextlib.contextmanager
def connected(closed: bool = True) -> Iterator[Any]:
    """The module `ray`, connected to the cluster.

    `closed`: whether a token must be asked for. Raises RunError, in one line, if Ray is not installed, no cluster
    is there, or it has another version.
    """
    ray = imported()
    if closed and not asks_for_token():
        raise RunError(f"the Ray cluster is not used: {OPEN}")
    address = os.environ.get("RAY_ADDRESS") or "auto"
    if address == "local":
        raise RunError(
            "no Ray cluster that can be used: RAY_ADDRESS=local names none, but lets Ray start one that only this "
            "command would use; start one with `ray start --head`, and unset RAY_ADDRESS, or run without Ray"
        )
    where = "this machine" if address == "auto" else address
    before = {number: signal.getsignal(number) for number in unix_signals.NUMBERS}
    try:
        _reach(address)
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
    except Exception as error:  # Ray raises errors of many classes here
        reason = " ".join(str(error).split())[:300]
        raise RunError(
            f"no Ray cluster that can be used at {where}: {type(error).__name__}: {reason}; start one with "
            "`ray start --head`, with this version of Ray and Python, or set RAY_ADDRESS"
        ) from None
    try:
        for number, handler in before.items():
            signal.signal(number, handler)  # Ray's own ends the process, and no file would be closed
        yield ray
    finally:
        ray.shutdown()


def imported() -> Any:
    """The module `ray`, with settings that it reads when it is imported.

    Raises RunError if it is not installed.
    """
    # Else, under `uv run`, Ray copies the current folder to every machine and starts each worker with `uv run`.
    # With several nodes on a machine, one replaces the folder of the other's workers, and torch then ends them.
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    # A worker without a GPU keeps its environment.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise RunError("Ray is not installed: pip install 'fedstride[simulation]'") from None
    return ray


def _reach(address: str) -> None:
    """Raise OSError if no Ray answers at HOST:PORT or ray://HOST: Ray itself would try for minutes."""
    place = address.removeprefix("ray://")
    host, _, port = place.rpartition(":")
    if place != address and not port.isdigit():
        host, port = place, OF_CLIENTS
    if host and port.isdigit():
        with socket.create_connection((host, int(port)), timeout=REACH_SECONDS) as connection:
            _check_it_is_grpc(connection)


def _check_it_is_grpc(connection: socket.socket) -> None:
    """Raise OSError if the server does not begin as those of gRPC do. One with TLS is left to Ray."""
    if os.environ.get("RAY_USE_TLS") == "1":
        return
    connection.sendall(PREFACE)
    with connection.makefile("rb") as answer:
        if answer.read(4)[3:] != SETTINGS:
            raise ConnectionError("what answers there is not Ray")


def environment() -> dict[str, str]:
    """The environment variables to pass on, as they are here."""
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ}


def use_environment(variables: Mapping[str, str]) -> None:
    """Set these variables in this process, where they are not set."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def asks_for_token() -> bool:
    """Whether Ray asks for a token, in all processes that have the environment of this one."""
    return os.environ.get("RAY_AUTH_MODE") == "token"


def facts(demands: Demands) -> ProcessFacts:
    """The facts of this process."""
    return ProcessFacts(socket.gethostname(), versions(), os.path.isdir(demands.folder), asks_for_token())


def unusable(process: ProcessFacts, demands: Demands) -> str | None:
    """Why a process with these facts cannot take part; None if it can."""
    here = versions()
    for name in SAME:
        theirs = process.versions.get(name, "nothing")
        if _comparable(name, theirs) != _comparable(name, here[name]):
            return f"{process.host} has {name} {theirs}, but this machine {here[name]}"
    if demands.closed and not process.closed:
        return f"the Ray of {process.host} was started without a token; {OPEN}"
    return None if process.sees else f"{process.host} does not see {demands.folder}, which all machines must share"


def say_not_used(reason: str) -> None:
    """Log why a machine is not used."""
    log(WARNING, "a machine of the Ray cluster is not used: %s", reason)


def _comparable(name: str, version: str) -> str:
    return ".".join(version.split(".")[:2]) if name == "python" else version.split("+")[0]
