"""`fedstride superlink`: listens, with the guard before Flower's SuperLink, until a signal ends it."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import uvicorn

from confinement import no_dump, support
from fedstride.errors import ConfigError, RunError
from fedstride.files import private_files
from fedstride.processes import unix_signals

from . import serverapp_access, token
from .allowed_routes import Rules
from .connections import MOST_HEAD, Connections, Protocol, listen
from .guard import Guard
from .run_folder_stream import Files
from .serverapp_executor import Address, Executor
from .settings import SuperLinkSettings, clean, read

KEEP_ALIVE_SECONDS = 20
"""An idle connection is kept so long. A node asks every three seconds at least."""

WAITING = 128
"""Connections that wait to be accepted, and that are accepted in one go: with TLS, each takes 256 KiB at once."""

OWN = {"0.0.0.0": "127.0.0.1", "::": "::1"}
"""Where this machine reaches a server that listens on all addresses."""

BESIDE = ("", "-wal", "-shm", "-journal")
"""What SQLite adds to a database's name."""

SERVERAPPS = "superlink-serverapps"
"""In FLWR_HOME, by the address of the SuperLink: what ServerApps need while they live."""


def run(arguments: Sequence[str]) -> None:
    """Run a SuperLink with these arguments until SIGINT or SIGTERM.

    Raises ConfigError for settings that are not allowed, and for files that other users could read or change;
    RunError if the port is taken.
    """
    os.umask(0o077)
    settings = read(arguments)
    clean()
    if support().machine:
        no_dump()  # the token is in this process's memory
    _check(settings)
    host = OWN.get(settings.host, settings.host)
    address = token.place(f"{host}:{settings.port}")
    place = serverapp_access.read(settings.serverapps, address.parent.parent / SERVERAPPS / address.name)
    lines = Connections(one_peer=settings.behind_proxy)
    try:
        listener = listen(settings.host, settings.port, lines)
    except OSError as error:
        raise RunError(
            f"{settings.host}:{settings.port} cannot be listened on ({error.strerror or error}); "
            "choose another --port"
        ) from error
    with listener:
        secret = token.renew(address)
        place.tidy()
        _say(place)
        _serve(settings, place, lines, listener, secret)


def _say(place: serverapp_access.ServerFolders) -> None:
    missing = ", ".join(support().missing())
    if not place.confined:
        print(f"warning: ServerApps are not confined: {missing or 'confine is off'}", file=sys.stderr, flush=True)
    else:
        print(f"ServerApps are confined{f', without: {missing}' if missing else ''}", file=sys.stderr, flush=True)


def _check(settings: SuperLinkSettings) -> None:
    """Raises ConfigError if another user could read or change what the SuperLink keeps."""
    if settings.database is not None:
        try:
            settings.database.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"the folder of the database {settings.database} cannot be made ({error.strerror}); make it, or "
                "give another file with --database"
            ) from error
        check_database(settings.database)
        private_files.check_folder(
            settings.database.parent, "the folder of the database", others=private_files.CHANGE
        )
    if settings.key is not None:
        private_files.check_file(settings.key, "the key")


def check_database(path: Path) -> None:
    """Raises ConfigError if another user could read or change the database, or what SQLite writes beside it."""
    for ending in BESIDE:
        private_files.check_file(path.with_name(path.name + ending), "the database")


def _serve(
    settings: SuperLinkSettings,
    place: serverapp_access.ServerFolders,
    lines: Connections,
    listener: socket.socket,
    secret: str,
) -> None:
    from fedstride.flower.for_nodes.connecting import uses_http
    from fedstride.flower.for_superlinks.asgi import SuperLinkApp
    from fedstride.flower.for_superlinks.waiting_serverapps import Tasks

    flower = SuperLinkApp(settings.passed)
    ca = None if flower.ca is None else Path(flower.ca).read_bytes()
    address = Address(OWN.get(settings.host, settings.host), settings.port, ca)
    executor = Executor(Tasks(flower.app), address, place, flower.has_task)
    rules = Rules(secret, uses_http(), settings.flwr, settings.behind_proxy)
    guard = Guard(flower, rules, Files(place.runs), lines.vouch, executor.look)
    protocol: Any = functools.partial(Protocol, lines=lines)
    config = uvicorn.Config(
        guard,
        host=settings.host,
        port=settings.port,
        http=protocol,
        loop="asyncio",
        ws="none",
        lifespan="on",
        backlog=WAITING,
        proxy_headers=False,
        server_header=False,
        log_config=flower.log_config,
        h11_max_incomplete_event_size=MOST_HEAD,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        ssl_certfile=flower.certificate,
        ssl_keyfile=flower.key,
    )
    server = Server(config, executor, lines)
    try:
        server.run(sockets=[listener])
    except unix_signals.STOPPED:
        return
    if not server.started:
        raise RunError("the SuperLink did not start; the lines above say why")


class Server(uvicorn.Server):
    """uvicorn's server, which also starts ServerApps and watches over its connections."""

    def __init__(self, config: uvicorn.Config, executor: Executor, lines: Connections) -> None:
        super().__init__(config)
        self._work = (executor.serve, lines.watch)
        self._tasks: list[asyncio.Task[None]] = []

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        await super().startup(sockets)
        if self.started:
            gc.collect()
            gc.freeze()  # so that a collection looks only at what comes after this; see `Connections.gone`
            self._tasks = [asyncio.create_task(work()) for work in self._work]
            host, port = self.config.host, self.config.port
            print(f"the SuperLink listens on {host}:{port}", file=sys.stderr, flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """See uvicorn."""
        for task in self._tasks:
            task.cancel()
        await super().shutdown(sockets)
