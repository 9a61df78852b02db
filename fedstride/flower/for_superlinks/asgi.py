"""Flower's SuperLink as an ASGI application that does not listen yet, and the questions of a guard before it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from flwr.supercore.http_logging import get_uvicorn_log_config
from flwr.supercore.logger import console_handler
from flwr.superlink import main

from ..for_nodes.connecting import uses_http

flower_superlink: Any = import_module("flwr.superlink.cli.flower_superlink")
"""Its package has a function of this name, too."""

PROCESS = "process"
"""Flower's word for ServerApps that it does not start itself."""

UNKNOWN_TASK = b'{"code": 1008, "public_message": "Authentication failed."}'
"""Flower's answer, with status 401, to a ServerApp whose task has ended or is not known (1.39 to 1.42)."""


class SuperLinkApp:
    """A SuperLink with these options of `flower-superlink`; it ends the process for options that Flower refuses.

    `app` serves everything but a node's gRPC, which starts with its lifespan. No ServerApp is started.
    """

    def __init__(self, arguments: Sequence[str]) -> None:
        sys.argv = ["flower-superlink", *arguments]
        config = dataclasses.replace(
            flower_superlink._parse_superlink_lifespan_config(), isolation=PROCESS, superexec_auth_secret=None
        )
        if not uses_http():
            from .guarded_grpc import guarded

            create = flower_superlink.generic_create_grpc_server
            flower_superlink.generic_create_grpc_server = guarded(create, self.node_of)
        self.app: Any = main.create_app(config, flower_superlink.SuperLinkLifespan)
        self.host, self.port = str(config.host), int(config.port)
        self.certificate, self.key = config.ssl_certfile, config.ssl_keyfile
        self.ca: str | None = config.ssl_ca_certfile
        self.log_config = get_uvicorn_log_config(console_handler.level)

    def node_of(self, public_key: bytes) -> int | None:
        """The id of the node with this key; None if none is registered."""
        node_id = self.app.state.linkstate_factory.state().get_node_id_by_public_key(public_key)
        return None if node_id is None else int(node_id)

    def has_task(self, token: str) -> bool:
        """Whether this is the token of a ServerApp's task that has not ended."""
        return self.app.state.linkstate_factory.state().get_task_by_token(token) is not None
